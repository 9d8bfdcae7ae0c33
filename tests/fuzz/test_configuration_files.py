"""Any configuration file: read, or refused with every mistake in it; what is read can be put in force."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.conftest import FUZZ, check_error, damaged, mutated
from tidelog.api.errors import TidelogError
from tidelog.configuration.configuration import default_configuration, read_configuration, write_configuration
from tidelog.plugins.registry import Registry
from tidelog.scheduler.core import Core

REGISTRY = Registry()
SEED: dict[str, Any] = yaml.safe_load(write_configuration(default_configuration(REGISTRY)))
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 200),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "PodTopologySpread",
            "*",
            "NodeAffinity",
            "5s",
            "-5s",
            "1h99999999999s",
            "default-scheduler",
            "\x1b[2J",
            "",
        ]
    ),
    st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def check(text: str | bytes) -> None:
    try:
        loaded = read_configuration(text, REGISTRY, source="fuzz")
    except TidelogError as error:
        check_error(error)
        return
    Core(REGISTRY).check(loaded.configuration)
    again = read_configuration(write_configuration(loaded.configuration), REGISTRY)
    assert again.configuration == loaded.configuration


@FUZZ
@given(mutated(SEED, LEAVES))
def test_mutated_configurations_are_read_or_refused(value: Any) -> None:
    check(yaml.safe_dump(value, allow_unicode=True))


@FUZZ
@given(st.binary(max_size=200) | st.text(max_size=200))
@example(b"[" * 5000)
@example("a: &a [*a]")
@example("profiles: " + "[" * 200 + "]" * 200)
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    check(text)


@FUZZ
@given(damaged(SEED, LEAVES))
def test_damaged_text_is_read_or_refused(text: bytes) -> None:
    check(text)
