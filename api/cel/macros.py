"""The macros: calls that are no functions, because they name variables or look at their argument unevaluated."""

from __future__ import annotations

from tidelog.api.cel.errors import InvalidExpression
from tidelog.api.cel.tree import Bind, Call, Ident, Loop, Select, TreeNode

_QUANTIFIERS = {"all": "all", "exists": "exists", "exists_one": "exists_one", "existsOne": "exists_one"}
_TRANSFORMS = {"transformList": "list", "transformMap": "map", "transformMapEntry": "entries"}
_ACCUMULATOR = "__result__"
SORTED = "@sorted"
"""The name of the list that `sortBy` sorts; nobody can write it."""


def call(at: int, function: str, args: tuple[TreeNode, ...]) -> TreeNode | None:
    """Expand `function(args)`, if it is a macro."""
    if function != "has" or len(args) != 1:
        return None
    field = args[0]
    if not isinstance(field, Select) or field.test or field.optional:
        raise InvalidExpression("invalid argument to has() macro", args[0].at)
    return Select(at, field.operand, field.field, test=True)


def receiver(at: int, function: str, target: TreeNode, args: tuple[TreeNode, ...]) -> TreeNode | None:
    """Expand `target.function(args)`, if it is a macro."""
    count = len(args)
    if function == "bind" and count == 3 and isinstance(target, Ident) and target.name == "cel":
        return Bind(at, _name(args[0], "cel.bind() variable names must be simple identifiers"), *args[1:])
    if function in _QUANTIFIERS and (count == 3 or (count == 2 and function != "existsOne")):
        return Loop(at, _QUANTIFIERS[function], target, _names(args[:-1]), args[-1], None)
    if function == "filter" and count == 2:
        return Loop(at, "list", target, _names(args[:1]), args[1], args[0])
    if function == "map" and count in (2, 3):
        return Loop(at, "list", target, _names(args[:1]), args[1] if count == 3 else None, args[-1])
    if function in _TRANSFORMS and count in (3, 4):
        test = args[2] if count == 4 else None
        return Loop(at, _TRANSFORMS[function], target, _names(args[:2]), test, args[-1])
    if function in ("optMap", "optFlatMap") and count == 2:
        return _mapped(at, function, target, args)
    return _sorted(at, target, args) if function == "sortBy" and count == 2 else None


def _mapped(at: int, function: str, target: TreeNode, args: tuple[TreeNode, ...]) -> TreeNode:
    name = _name(args[0], f"{function}() variable name must be a simple identifier")
    inner: TreeNode = Bind(at, name, Call(at, "value", (), target), args[1])
    if function == "optMap":
        inner = Call(at, "optional.of", (inner,))
    has_value = Call(at, "hasValue", (), target)
    return Call(at, "_?_:_", (has_value, inner, Call(at, "optional.none", ())))


def _sorted(at: int, target: TreeNode, args: tuple[TreeNode, ...]) -> TreeNode:
    this = Ident(at, SORTED)
    keys = Loop(at, "list", this, _names(args[:1]), None, args[1])
    return Bind(at, SORTED, target, Call(at, "@sortByAssociatedKeys", (keys,), this))


def _names(nodes: tuple[TreeNode, ...]) -> tuple[str, ...]:
    names = tuple(_name(node, "argument must be a simple name") for node in nodes)
    for node, name in zip(nodes, names, strict=True):
        if name == _ACCUMULATOR:
            raise InvalidExpression("iteration variable overwrites accumulator variable", node.at)
    if len(names) == 2 and names[0] == names[1]:
        raise InvalidExpression(f"duplicate variable name: {names[0]}", nodes[1].at)
    return names


def _name(node: TreeNode, rule: str) -> str:
    if not isinstance(node, Ident) or node.name.startswith("."):
        raise InvalidExpression(rule, node.at)
    return node.name
