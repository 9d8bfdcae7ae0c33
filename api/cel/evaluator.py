"""A checked tree becomes closures: each takes the variables of one evaluation and returns a value, or raises EvaluationError.

What walks through values pays for it (`charge`): a loop for each turn as much as its body is large, a function by the size of its
arguments. The rest is bounded by the length of the expression. Work of constants is done once, where cel-go does it once too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.api.cel.checker import Checked, Resolved
from tidelog.api.cel.declarations import Overload, Run
from tidelog.api.cel.errors import CostExceeded, EvaluationError, InvalidExpression, no_overload
from tidelog.api.cel.patterns import pattern_of
from tidelog.api.cel.standard import CONVERSIONS, element, index_of_list
from tidelog.api.cel.tree import Bind, Call, Ident, ListNode, Literal, Loop, MapNode, Select, TreeNode
from tidelog.api.cel.values import (
    MISSING,
    NONE,
    CelMap,
    Closure,
    Env,
    Optional,
    Uint,
    charge,
    equal,
    is_hashable,
    is_of,
    key_of,
    size_of,
    surely_equal,
)

_PATTERN_ARGUMENT = ("matches", "find", "findAll")


def compile_tree(tree: TreeNode, checked: Checked) -> tuple[Closure, int]:
    """The closure, and how many variables it wants. Raises InvalidExpression for constants that fail."""
    compiler = _Compiler(checked)
    return compiler.compile(tree), compiler.slots


class _Constant:
    """A closure that always returns the same."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, env: Env) -> Any:
        return self.value


class _Compiler:
    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.scope: dict[str, int] = {"device": 1}
        self.slots = 2
        self.bound: dict[int, Closure] = {}
        """Of variables that `cel.bind` names: what makes them."""

    def compile(self, node: TreeNode) -> Closure:
        if isinstance(node, Literal):
            return _Constant(node.value)
        if isinstance(node, Call):
            return self.call(node)
        if isinstance(node, Select):
            constant = self.checked.constants.get(id(node))
            return self.select(node) if constant is None else _Constant(constant)
        if isinstance(node, Ident):
            return self.ident(node)
        if isinstance(node, Loop):
            return self.loop(node)
        if isinstance(node, Bind):
            return self.bind(node)
        if isinstance(node, ListNode):
            return self.list(node)
        assert isinstance(node, MapNode)
        return self.map(node)

    def ident(self, node: Ident) -> Closure:
        slot = None if node.name.startswith(".") else self.scope.get(node.name)
        constant = self.checked.constants.get(id(node))
        if constant is not None:
            return _Constant(constant)
        slot = 1 if slot is None else slot
        init = self.bound.get(slot)
        return (lambda env: env[slot]) if init is None else _lazy(slot, init)

    def variable(self, name: str) -> tuple[int, int | None]:
        """A new slot for a name, and the one that it hides."""
        slot, hidden = self.slots, self.scope.get(name)
        self.slots += 1
        self.scope[name] = slot
        return slot, hidden

    def forget(self, name: str, hidden: int | None) -> None:
        if hidden is None:
            del self.scope[name]
        else:
            self.scope[name] = hidden

    # --- fields and indices

    def select(self, node: Select) -> Closure:
        operand, field = self.compile(node.operand), node.field
        if node.test:
            return lambda env: _present(operand(env), field)
        if node.optional:
            return lambda env: _optional_element(operand(env), field)

        def plain(env: Env) -> Any:
            value = operand(env)
            if type(value) is CelMap:
                found = value.find(field)
                if found is MISSING:
                    raise EvaluationError(f"no such key: {field}")
                return found
            return _selected(value, field)

        return plain

    # --- calls

    def call(self, node: Call) -> Closure:
        resolved = self.checked.calls[id(node)]
        name = resolved.function.name
        nodes = node.args if resolved.target is None else (resolved.target, *node.args)
        args = [self.compile(arg) for arg in nodes]
        special = _SPECIAL.get(name)
        if special is not None:
            return special(*args)
        if name in ("_&&_", "_||_"):
            return _joined(args, decisive=name == "_||_")
        if name == "@in" and isinstance(args[1], _Constant) and len(resolved.overloads) == 1:
            found = _in_constant(args[0], args[1].value)
            if found is not None:
                return found
        if name in CONVERSIONS and len(args) == 1 and isinstance(args[0], _Constant):
            return _folded(node, _run(resolved, args))
        if name in _PATTERN_ARGUMENT and isinstance(args[1], _Constant) and type(args[1].value) is str:
            _check_pattern(node, args[1].value)
        return _run(resolved, args)

    # --- literals

    def list(self, node: ListNode) -> Closure:
        elements = [self.compile(one) for one in node.elements]
        optional = node.optional
        if all(isinstance(one, _Constant) for one in elements) and not optional:
            return _Constant([one([]) for one in elements])
        if not optional:
            return lambda env: [one(env) for one in elements]

        def with_optional(env: Env) -> Any:
            found: list[Any] = []
            for index, one in enumerate(elements):
                value = one(env)
                if index not in optional:
                    found.append(value)
                elif not isinstance(value, Optional):
                    raise EvaluationError("cannot initialize optional list element from a value that is none")
                elif value is not NONE:
                    found.append(value.value)
            return found

        return with_optional

    def map(self, node: MapNode) -> Closure:
        entries = [
            (self.compile(key), self.compile(value), optional) for key, value, optional in node.entries
        ]

        def made(env: Env) -> Any:
            found: dict[Any, tuple[Any, Any]] = {}
            for key, value, optional in entries:
                name, content = key(env), value(env)
                if optional:
                    if not isinstance(content, Optional):
                        raise EvaluationError("cannot initialize optional entry from a value that is none")
                    if content is NONE:
                        continue
                    content = content.value
                found[_typed_key(name)] = (name, content)
            return CelMap({key_of(name): (name, content) for name, content in found.values()})

        return made

    # --- macros

    def bind(self, node: Bind) -> Closure:
        init = self.compile(node.init)
        slot, hidden = self.variable(node.name)
        self.bound[slot] = init
        result = self.compile(node.result)
        self.forget(node.name, hidden)

        def bound(env: Env) -> Any:
            env[slot] = _UNSET
            return result(env)

        return bound

    def loop(self, node: Loop) -> Closure:
        over = self.compile(node.over)
        slots: list[int] = []
        hidden: list[tuple[str, int | None]] = []
        for name in node.names:
            slot, before = self.variable(name)
            slots.append(slot)
            hidden.append((name, before))
        test = None if node.test is None else self.compile(node.test)
        step = None if node.step is None else self.compile(node.step)
        for name, before in reversed(hidden):
            self.forget(name, before)
        cost = 1 + sum(part.size for part in (node.test, node.step) if part is not None)
        turns = _turns(over, slots, cost)
        return _LOOPS[node.kind](turns, test, step)


class _Unset:
    __slots__ = ()


_UNSET = _Unset()


def _lazy(slot: int, init: Closure) -> Closure:
    """A variable of `cel.bind`: made when it is first read, as in cel-go; one that fails and is never read does no harm."""

    def read(env: Env) -> Any:
        value = env[slot]
        if value is _UNSET:
            try:
                value = init(env)
            except EvaluationError as failure:
                value = failure
            env[slot] = value
        if isinstance(value, EvaluationError):
            raise value
        return value

    return read


# --- fields and indices -----------------------------------------------------------------------------------------------------


def _selected(value: Any, field: Any) -> Any:
    """`value.field` of what is no map: inside of an optional, or an error."""
    if isinstance(value, Optional):
        return _optional_element(value, field)
    return element(value, field)


def _optional_element(value: Any, key: Any) -> Any:
    """`value.?key` or `value[?key]`."""
    if isinstance(value, Optional):
        if value is NONE:
            return NONE
        value = value.value
    found = _found(value, key)
    return NONE if found is MISSING else Optional(found)


def _found(value: Any, key: Any) -> Any:
    if type(value) is CelMap:
        return value.find(key)
    if type(value) is list:
        position = index_of_list(value, key)
        return value[position] if 0 <= position < len(value) else MISSING
    return MISSING


def _present(value: Any, field: str) -> bool:
    """`has(value.field)`."""
    if isinstance(value, Optional):
        return value is not NONE and _found(value.value, field) is not MISSING
    return _found(value, field) is not MISSING


def _typed_key(key: Any) -> Any:
    """While a map is written, keys of different kinds are different; the last of equal ones counts."""
    return (type(key), key_of(key))


# --- calls that need no values of all their arguments -----------------------------------------------------------------------


def _conditional(test: Closure, chosen: Closure, other: Closure) -> Closure:
    def conditional(env: Env) -> Any:
        value = test(env)
        if type(value) is not bool:
            raise no_overload("_?_:_")
        return chosen(env) if value else other(env)

    return conditional


def _equals(left: Closure, right: Closure) -> Closure:
    def equals(env: Env) -> Any:
        a, b = left(env), right(env)
        if type(a) is str and type(b) is str:
            return a == b
        return equal(a, b, env)

    return equals


def _differs(left: Closure, right: Closure) -> Closure:
    # Whatever is not surely equal differs, also what cannot be compared: cel-go asks for equality and negates.
    def differs(env: Env) -> Any:
        return not surely_equal(left(env), right(env), env)

    return differs


def _index(operand: Closure, key: Closure) -> Closure:
    def index(env: Env) -> Any:
        return _selected(operand(env), key(env))

    return index


def _optional_index(operand: Closure, key: Closure) -> Closure:
    return lambda env: _optional_element(operand(env), key(env))


def _or(first: Closure, second: Closure) -> Closure:
    def either(env: Env) -> Any:
        value = first(env)
        if not isinstance(value, Optional):
            raise no_overload("or")
        return second(env) if value is NONE else value

    return either


def _or_value(first: Closure, second: Closure) -> Closure:
    def either(env: Env) -> Any:
        value = first(env)
        if not isinstance(value, Optional):
            raise no_overload("orValue")
        return second(env) if value is NONE else value.value

    return either


_SPECIAL: dict[str, Callable[..., Closure]] = {
    "_?_:_": _conditional,
    "_==_": _equals,
    "_!=_": _differs,
    "_[_]": _index,
    "_[?_]": _optional_index,
    "or": _or,
    "orValue": _or_value,
}


def _joined(parts: list[Closure], *, decisive: bool) -> Closure:
    """`||` if True is decisive, `&&` if False is: one decisive part is enough, whatever errors the others raise."""

    def joined(env: Env) -> Any:
        failure: EvaluationError | None = None
        for part in parts:
            try:
                value = part(env)
            except EvaluationError as problem:
                failure = failure or problem
                continue
            if value is decisive:
                return decisive
            if type(value) is not bool:
                failure = failure or no_overload("||" if decisive else "&&")
        if failure is not None:
            raise failure
        return not decisive

    return joined


def _in_constant(left: Closure, items: list[Any]) -> Closure | None:
    """`in` a list of constants: a look-up. None if it has elements for which cel-go does not do that."""
    if not items:
        return _Constant(False)
    if not all(type(item) in (bool, int, Uint, float, str) for item in items):
        return None
    keys = frozenset(map(key_of, items))

    def contained(env: Env) -> Any:
        value = left(env)
        if not is_hashable(value):
            raise EvaluationError("hash of unhashable type")
        try:
            return key_of(value) in keys
        except EvaluationError:
            return False

    return contained


def _folded(node: TreeNode, run: Closure) -> Closure:
    try:
        return _Constant(run([1_000_000]))
    except (EvaluationError, CostExceeded) as problem:
        raise InvalidExpression(f"program instantiation failed: {problem}", node.at) from None


def _check_pattern(node: TreeNode, pattern: str) -> None:
    try:
        pattern_of(pattern)
    except EvaluationError as problem:
        raise InvalidExpression(str(problem), node.at) from None


def _run(resolved: Resolved, args: list[Closure]) -> Closure:
    function, overloads = resolved.function, resolved.overloads
    if function.run_any is not None:
        return _plain(function.run_any, args)
    if len(overloads) == 1:
        overload = overloads[0]
        if not function.is_guarded and overload.run is not None:
            return _unguarded(overload.run, args, function.wants_env)
        return _dispatched(function.name, overloads, args, function.wants_env)
    return _dispatched(function.name, function.overloads, args, function.wants_env)


def _plain(run: Run, args: list[Closure]) -> Closure:
    """A function that looks at its values itself, and pays for itself."""
    if len(args) == 1:
        (only,) = args
        return lambda env: run(env, only(env))
    if len(args) == 2:
        left, right = args
        return lambda env: run(env, left(env), right(env))
    return lambda env: run(env, *[arg(env) for arg in args])


def _unguarded(run: Run, args: list[Closure], wants_env: bool) -> Closure:
    def call(env: Env) -> Any:
        values = [arg(env) for arg in args]
        charge(env, size_of(values))
        return run(env, *values) if wants_env else run(*values)

    return call


def _dispatched(name: str, overloads: tuple[Overload, ...], args: list[Closure], wants_env: bool) -> Closure:
    count = len(args)
    fitting = [
        (overload.args, overload.run, overload.cost)
        for overload in overloads
        if len(overload.args) == count and overload.run is not None
    ]

    def call(env: Env) -> Any:
        values = [arg(env) for arg in args]
        for wanted, run, cost in fitting:
            if all(map(is_of, values, wanted)):
                charge(env, size_of(values) if cost is None else cost(*values))
                return run(env, *values) if wants_env else run(*values)
        raise no_overload(name)

    return call


# --- loops ------------------------------------------------------------------------------------------------------------------

_Turns = Callable[[Env], Any]
"""Yields a key for each turn, with the variables set."""


def _turns(over: Closure, slots: list[int], cost: int) -> _Turns:
    def turns(env: Env) -> Any:
        value = over(env)
        if type(value) is list:
            pairs = list(enumerate(value))
            first = 1
        elif type(value) is CelMap:
            pairs = list(value.entries.values())
            first = 0
        else:
            raise no_overload("comprehension")
        for pair in pairs:
            charge(env, cost)
            if len(slots) == 2:
                env[slots[0]], env[slots[1]] = pair
            else:
                env[slots[0]] = pair[first]
            yield pair[0]

    return turns


def _quantified(decisive: bool) -> Callable[..., Closure]:
    """exists if True is decisive, all if False is."""

    def make(turns: _Turns, test: Closure, _step: None) -> Closure:
        def quantified(env: Env) -> Any:
            failure: EvaluationError | None = None
            for _ in turns(env):
                try:
                    value = test(env)
                except EvaluationError as problem:
                    failure = failure or problem
                    continue
                if value is decisive:
                    return decisive
                if type(value) is not bool:
                    failure = failure or no_overload("quantifier")
            if failure is not None:
                raise failure
            return not decisive

        return quantified

    return make


def _exactly_one(turns: _Turns, test: Closure, _step: None) -> Closure:
    def exactly_one(env: Env) -> Any:
        return sum(_holds(test, env) for _ in turns(env)) == 1

    return exactly_one


def _holds(test: Closure | None, env: Env) -> bool:
    if test is None:
        return True
    value = test(env)
    if type(value) is not bool:
        raise no_overload("_?_:_")
    return value


def _list(turns: _Turns, test: Closure | None, step: Closure) -> Closure:
    return lambda env: [step(env) for _ in turns(env) if _holds(test, env)]


def _map(turns: _Turns, test: Closure | None, step: Closure) -> Closure:
    def made(env: Env) -> Any:
        entries: dict[Any, tuple[Any, Any]] = {}
        for key in turns(env):
            if _holds(test, env):
                _insert(entries, key, step(env))
        return CelMap(entries)

    return made


def _entries(turns: _Turns, test: Closure | None, step: Closure) -> Closure:
    def made(env: Env) -> Any:
        entries: dict[Any, tuple[Any, Any]] = {}
        for _ in turns(env):
            if _holds(test, env):
                found = step(env)
                if type(found) is not CelMap:
                    raise no_overload("transformMapEntry")
                charge(env, len(found.entries))
                for key, value in found.entries.values():
                    _insert(entries, key, value)
        return CelMap(entries)

    return made


def _insert(entries: dict[Any, tuple[Any, Any]], key: Any, value: Any) -> None:
    if key_of(key) in entries:
        raise EvaluationError("insert failed: key already exists")
    entries[key_of(key)] = (key, value)


_LOOPS: dict[str, Callable[..., Closure]] = {
    "all": _quantified(False),
    "exists": _quantified(True),
    "exists_one": _exactly_one,
    "list": _list,
    "map": _map,
    "entries": _entries,
}
