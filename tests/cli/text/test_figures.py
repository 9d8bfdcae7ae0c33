"""Figures of benchmarks as text, and the benchmarks that there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Tidelog
from tidelog.cli import benchmark_catalogue
from tidelog.cli.text.figures import as_text

TOY = '''"""A toy: how fast nothing is done.

More about it.
"""


def run(pods: int = 10, **_: int) -> dict[str, object]:
    return {"benchmark": "toy", "pods": pods, "pods_per_second": 12345.678}
'''


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of benchmarks with one in it, and a helper."""
    (tmp_path / "toy_one.py").write_text(TOY)
    (tmp_path / "_helper.py").write_text("")
    monkeypatch.setattr(benchmark_catalogue, "folder", lambda _: tmp_path)
    monkeypatch.setattr(benchmark_catalogue, "import_module", _imported(tmp_path))


def _imported(folder: Path) -> object:
    from importlib.util import module_from_spec, spec_from_file_location

    def import_module(name: str) -> object:
        spec = spec_from_file_location(name, folder / f"{name.rpartition('.')[2]}.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return import_module


def test_figures_are_aligned_nested_and_tabled() -> None:
    text = as_text(
        {
            "benchmark": "toy",
            "pods_per_second": 12345,
            "ratio": 0.123456789,
            "good": True,
            "sizes": [1, 20_000],
            "nested": {"a": 1, "longer_name": 2_000_000.5},
            "rows": [{"pods": 1, "ms": 0.5}, {"pods": 1000, "note": "x"}],
        }
    )

    assert text.splitlines() == [
        "benchmark        toy",
        "pods per second  12,345",
        "ratio            0.123457",
        "good             true",
        "sizes            1, 20,000",
        "nested:",
        "  a            1",
        "  longer name  2,000,000",
        "rows:",
        "  PODS    MS       NOTE",
        "  1       0.5      <none>",
        "  1,000   <none>   x",
    ]


@pytest.mark.usefixtures("toys")
def test_benchmarks_are_listed_by_what_they_measure(tidelog: Tidelog) -> None:
    assert tidelog("bench").lines == ["BENCHMARK   MEASURES", "toy-one     A toy: how fast nothing is done"]
    assert json.loads(tidelog("bench", "-o", "json").out) == {"toy-one": "A toy: how fast nothing is done"}


@pytest.mark.usefixtures("toys")
def test_benchmark_runs_in_the_size_asked_for(tidelog: Tidelog) -> None:
    assert json.loads(tidelog("bench", "toy-one", "-o", "json").out)["pods"] == 10
    assert json.loads(tidelog("bench", "toy-one", "--pods", "7", "-o", "json").out)["pods"] == 7
    assert tidelog("bench", "toy-one").lines[-1] == "pods per second  12,345.7"


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["toy-on"], "there is no benchmark toy-on, did you mean toy-one? (known: toy-one)"),
        (["toy-one", "--pods", "0"], "--pods 0: must be at least 1"),
        (["toy-one", "--nodes", "many"], "invalid int value: 'many'"),
    ],
)
def test_benchmark_that_there_is_not_is_wrong_usage(tidelog: Tidelog, words: list[str], error: str) -> None:
    ran = tidelog("bench", *words)

    assert ran.code == 2
    assert error in ran.err


def test_every_benchmark_of_the_repository_says_what_it_measures_and_runs() -> None:
    import importlib

    found = benchmark_catalogue.benchmarks()

    assert found
    for name, what in found.items():
        assert what, name
        assert callable(importlib.import_module(benchmark_catalogue.module_of(name)).run), name
