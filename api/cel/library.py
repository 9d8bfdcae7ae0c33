"""All functions by name: several modules may add overloads to one."""

from __future__ import annotations

from tidelog.api.cel import (
    kubernetes_functions,
    list_functions,
    network_functions,
    standard,
    text_functions,
    time_functions,
)
from tidelog.api.cel.declarations import Function, Overload


def _collected() -> dict[str, Function]:
    found: dict[str, list[Function]] = {}
    for module in (
        standard,
        list_functions,
        text_functions,
        kubernetes_functions,
        network_functions,
        time_functions,
    ):
        for function in module.FUNCTIONS:
            found.setdefault(function.name, []).append(function)
    return {name: _merged(name, functions) for name, functions in found.items()}


def _merged(name: str, functions: list[Function]) -> Function:
    if len(functions) == 1:
        return functions[0]
    overloads: list[Overload] = []
    for function in functions:
        assert function.is_guarded, name
        overloads += (_bound(function, overload) for overload in function.overloads)
    return Function(name, tuple(overloads), wants_env=True)


def _bound(function: Function, overload: Overload) -> Overload:
    """The overload with something of its own to run, which is given the budget first."""
    run = overload.run or function.run_any
    assert run is not None, function.name
    if function.wants_env:
        return overload._replace(run=run)
    return overload._replace(run=lambda _env, *values: run(*values))


FUNCTIONS = _collected()
