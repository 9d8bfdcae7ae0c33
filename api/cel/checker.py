"""Static types of an expression, as far as they are known before it runs; which overloads each call may mean.

As in cel-go with Kubernetes' options: lists and maps are written with elements of one type, and `dyn` is none of the others there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.api.cel.declarations import Function, Overload
from tidelog.api.cel.errors import InvalidExpression
from tidelog.api.cel.library import FUNCTIONS
from tidelog.api.cel.text_functions import CLAUSES, clauses_of
from tidelog.api.cel.tree import Bind, Call, Ident, ListNode, Literal, Loop, MapNode, Select, TreeNode
from tidelog.api.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    QUANTITY,
    STRING,
    UINT,
    Bindings,
    Type,
    is_dyn,
    is_less_specific,
    is_optional,
    list_of,
    map_of,
    optional_of,
    same_shape,
    type_of_type,
    unwrapped,
)
from tidelog.api.cel.values import TypeValue, Uint

DEVICE = Type("struct", "kubernetes.DRADevice")
DEVICE_FIELDS: dict[str, Type] = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
}
_TYPE_NAMES: dict[str, Type] = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "dyn": DYN,
    "google.protobuf.Duration": Type("duration"),
    "google.protobuf.Timestamp": Type("timestamp"),
    "int": INT,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "net.CIDR": Type("struct", "net.CIDR"),
    "net.IP": Type("struct", "net.IP"),
    "null_type": NULL,
    "optional_type": optional_of(DYN),
    "string": STRING,
    "type": type_of_type(DYN),
    "uint": UINT,
}
_LITERALS: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}


class Resolved(NamedTuple):
    """The meaning of a call."""

    function: Function
    overloads: tuple[Overload, ...]
    """The overloads that the static types leave."""
    target: TreeNode | None


class Checked(NamedTuple):
    """Facts about a tree for the evaluator, by the nodes' identity."""

    calls: dict[int, Resolved]
    constants: dict[int, TypeValue]
    """Names of types."""


def check(tree: TreeNode) -> Checked:
    """Check a selector. Raises InvalidExpression."""
    checker = _Checker()
    result = checker.types.resolved(checker.check(tree), to_dyn=True)
    checker.check_literals()
    if result.kind not in ("bool", "dyn"):
        raise InvalidExpression(f"must evaluate to bool or the unknown type, not {result}")
    return Checked(checker.calls, checker.constants)


class _Checker:
    def __init__(self) -> None:
        self.types = Bindings()
        self.scopes: list[dict[str, Type]] = [{"device": DEVICE}]
        self.calls: dict[int, Resolved] = {}
        self.constants: dict[int, TypeValue] = {}
        self.literals: dict[int, tuple[tuple[tuple[TreeNode, Type], ...], ...]] = {}
        """The types of each list's elements, and of each map's keys and values."""
        self.formats = 0
        """How many calls of `format` the node is in: lists there may mix."""
        self.kinds: dict[int, Type] = {}

    def check(self, node: TreeNode) -> Type:
        if isinstance(node, Literal):
            return _LITERALS[type(node.value)]
        if isinstance(node, Call):
            return self.call(node)
        if isinstance(node, Select):
            return self.select(node)
        if isinstance(node, Ident):
            found = self.named(node, node.name)
            if found is None:
                raise InvalidExpression(f"undeclared reference to '{node.name}'", node.at)
            return found
        if isinstance(node, Loop):
            return self.loop(node)
        if isinstance(node, Bind):
            return self.bind(node)
        if isinstance(node, ListNode):
            return self.list(node)
        assert isinstance(node, MapNode)
        return self.map(node)

    # --- names and fields

    def named(self, node: TreeNode, name: str) -> Type | None:
        """The type of a variable, or of a type's name."""
        if not name.startswith("."):
            for scope in reversed(self.scopes):
                if name in scope:
                    return scope[name]
        name = name.removeprefix(".")
        if name == "device":
            return DEVICE
        found = _TYPE_NAMES.get(name)
        if found is None:
            return None
        self.constants[id(node)] = TypeValue(name)
        return type_of_type(found)

    def select(self, node: Select) -> Type:
        if not node.test and not node.optional:
            path = _path(node)
            found = None if path is None else self.named(node, path)
            if found is not None:
                return found
        operand = self.types.resolved(self.check(node.operand))
        target, was_optional = unwrapped(operand)
        result = self.field(node, target)
        if node.test:
            return BOOL
        return self.types.resolved(optional_of(result) if was_optional or node.optional else result)

    def field(self, node: Select, target: Type) -> Type:
        if target.kind == "map":
            return target.params[1]
        if target == DEVICE:
            if node.field in DEVICE_FIELDS:
                return DEVICE_FIELDS[node.field]
            raise InvalidExpression(f"undefined field '{node.field}'", node.at)
        if target.kind == "param":
            self.types.fits(DYN, target)
            return DYN
        if target.kind in ("dyn", "error"):
            return DYN
        raise InvalidExpression(f"type '{target}' does not support field selection", node.at)

    # --- calls

    def call(self, node: Call) -> Type:
        is_format = node.function == "format" and node.target is not None
        self.formats += is_format
        args = [self.check(arg) for arg in node.args]
        target = node.target
        function = None
        path = None if target is None else _path(target)
        if path is not None:
            function = FUNCTIONS.get(f"{path}.{node.function}".removeprefix("."))
        if function is not None:
            target = None
        else:
            if target is not None:
                args.insert(0, self.check(target))
            function = FUNCTIONS.get(node.function.removeprefix("."))
            if function is None:
                raise InvalidExpression(f"undeclared reference to '{node.function}'", node.at)
        self.formats -= is_format
        result = self.resolve(node, function, target, args)
        if is_format:
            self.check_format(node)
        return result

    def check_format(self, node: Call) -> None:
        """Where template and arguments are written down, they must fit."""
        template, values = node.target, node.args[0]
        if not isinstance(template, Literal) or not isinstance(values, ListNode):
            return
        clauses = clauses_of(template.value)
        if len(clauses) != len(values.elements):
            raise InvalidExpression(
                f"string.format wants {len(clauses)} arguments, but there are {len(values.elements)}", node.at
            )
        for clause, value in zip(clauses, values.elements, strict=True):
            kind = self.types.resolved(self.kinds[id(value)], to_dyn=True).kind
            if kind != "dyn" and kind not in CLAUSES.get(clause, ()):
                raise InvalidExpression(
                    f"formatting clause %{clause} is not supported for this value", value.at
                )

    def resolve(self, node: Call, function: Function, target: TreeNode | None, args: list[Type]) -> Type:
        if function.name in ("_&&_", "_||_"):
            for given, arg in zip(args, node.args, strict=True):
                if not self.types.fits(given, BOOL):
                    raise InvalidExpression(f"expected type 'bool' but found '{given}'", arg.at)
            self.calls[id(node)] = Resolved(function, function.overloads, None)
            return BOOL
        candidates: list[Overload] = []
        result: Type | None = None
        for overload in function.overloads:
            if overload.is_member != (target is not None) or len(overload.args) != len(args):
                continue
            wanted, found = self.instance(overload)
            if not self.types.all_fit(zip(args, wanted, strict=True)):
                continue
            candidates.append(overload)
            found = self.types.resolved(found)
            if result is None:
                result = found
            elif not is_dyn(result) and found != result:
                result = DYN
        if result is None:
            shown = ", ".join(str(self.types.resolved(arg, to_dyn=True)) for arg in args)
            raise InvalidExpression(
                f"found no matching overload for '{function.name}' applied to ({shown})", node.at
            )
        self.calls[id(node)] = Resolved(function, tuple(candidates), target)
        return result

    def instance(self, overload: Overload) -> tuple[tuple[Type, ...], Type]:
        """The overload's types with fresh parameters."""
        names = overload.parameters
        if not names:
            return overload.args, overload.result
        fresh = {name: self.types.fresh() for name in names}
        return tuple(_with(arg, fresh) for arg in overload.args), _with(overload.result, fresh)

    # --- literals

    def list(self, node: ListNode) -> Type:
        found = [self.element(one, index in node.optional) for index, one in enumerate(node.elements)]
        if self.formats:
            self.kinds.update(zip(map(id, node.elements), found, strict=True))
        if not self.formats:
            self.literals[id(node)] = (tuple(zip(node.elements, found, strict=True)),)
        return list_of(self.joined(found))

    def map(self, node: MapNode) -> Type:
        keys = [(key, self.check(key)) for key, _, _ in node.entries]
        values = [(value, self.element(value, optional)) for _, value, optional in node.entries]
        if not self.formats:
            self.literals[id(node)] = (tuple(keys), tuple(values))
        return map_of(self.joined(kind for _, kind in keys), self.joined(kind for _, kind in values))

    def element(self, node: TreeNode, optional: bool) -> Type:
        found = self.check(node)
        if not optional:
            return found
        inner, was_optional = unwrapped(self.types.resolved(found))
        if not was_optional and not is_dyn(inner):
            raise InvalidExpression(f"expected type 'optional_type({inner})' but found '{inner}'", node.at)
        return inner

    def joined(self, found: Iterable[Type]) -> Type:
        result: Type | None = None
        for one in found:
            if result is None:
                result = one
            elif not self.types.fits(result, one):
                result = DYN  # Only in a call of `format`: elsewhere `check_literals` refuses it.
            elif not is_less_specific(result, one):
                result = one
        return self.types.fresh() if result is None else result

    def check_literals(self) -> None:
        """Now that all is known: elements of one type each, where `dyn` is a type of its own."""
        for groups in self.literals.values():
            for group in groups:
                first: Type | None = None
                for node, one in group:
                    settled = self.types.resolved(one, to_dyn=True)
                    if first is None:
                        first = settled
                    elif not same_shape(first, settled):
                        raise _mismatch(self.types, node, first, settled)

    # --- macros

    def bind(self, node: Bind) -> Type:
        self.scopes.append({node.name: self.check(node.init)})
        result = self.check(node.result)
        self.scopes.pop()
        return self.types.resolved(result)

    def loop(self, node: Loop) -> Type:
        over = self.types.resolved(self.check(node.over))
        first, second = self.loop_types(node, over)
        self.scopes.append(dict(zip(node.names, (first, second), strict=False)))
        if node.test is not None:
            found = self.check(node.test)
            if not self.types.fits(found, BOOL):
                raise _mismatch(self.types, node.test, BOOL, found)
        result = BOOL if node.step is None else self.made(node, self.check(node.step), first)
        self.scopes.pop()
        return self.types.resolved(result)

    def made(self, node: Loop, step: Type, key: Type) -> Type:
        """The type of the list or map that a loop makes."""
        if node.kind == "list":
            return list_of(step)
        if node.kind == "map":
            return map_of(key, step)
        made = map_of(self.types.fresh(), self.types.fresh())
        if not self.types.fits(step, made):
            raise _mismatch(self.types, node, made, step)
        return made

    def loop_types(self, node: Loop, over: Type) -> tuple[Type, Type]:
        two = len(node.names) == 2
        if over.kind == "list":
            return (INT, over.params[0]) if two else (over.params[0], ERROR)
        if over.kind == "map":
            return over.params[0], over.params[1]
        if over.kind in ("dyn", "error", "param"):
            self.types.fits(DYN, over)
            return DYN, DYN
        raise InvalidExpression(
            f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)",
            node.over.at,
        )


def _path(node: TreeNode) -> str | None:
    """`a.b.c`, if the node is no more than that."""
    names: list[str] = []
    while isinstance(node, Select) and not node.test and not node.optional:
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join((node.name, *reversed(names)))


def _with(t: Type, names: dict[str, Type]) -> Type:
    if t.kind == "param":
        return names[t.name]
    if not t.params:
        return t
    return t._replace(params=tuple(_with(param, names) for param in t.params))


def _mismatch(types: Bindings, node: TreeNode, wanted: Type, found: Type) -> InvalidExpression:
    wanted, found = types.resolved(wanted, to_dyn=True), types.resolved(found, to_dyn=True)
    return InvalidExpression(f"expected type '{wanted}' but found '{found}'", node.at)


assert is_optional(_TYPE_NAMES["optional_type"])
