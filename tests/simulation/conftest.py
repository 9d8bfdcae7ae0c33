"""What holds for every test of the simulation."""

from __future__ import annotations

from collections.abc import Iterator

import coverage
import pytest


@pytest.fixture(autouse=True)
def _without_coverage() -> Iterator[None]:
    """Hundreds of simulated machines reach little that other tests do not, and tracing them takes longer than they do."""
    tracing = coverage.Coverage.current()
    if tracing is not None:
        tracing.stop()
    try:
        yield
    finally:
        if tracing is not None:
            tracing.start()
