"""The recorded traces, and the driver with which the conformance runner plays them on the queue."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path
from typing import Any

CONFORMANCE = Path(__file__).resolve().parent.parent / "conformance"


def _load_driver() -> Any:
    """The runner imports families from its own folder; here the file is enough."""
    path = CONFORMANCE / "families" / "queue.py"
    spec = importlib.util.spec_from_file_location("conformance_queue", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


driver = _load_driver()


def recorded(family: str) -> list[dict[str, Any]]:
    """The cases of a family."""
    with gzip.open(CONFORMANCE / "cases" / f"{family}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]
