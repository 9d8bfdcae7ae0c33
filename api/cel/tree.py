"""The tree of an expression, macros expanded. Nodes are told apart by identity; what the checker finds is kept beside them."""

from __future__ import annotations

from typing import Any

from tidelog.api.cel.errors import TooComplex

NODES_MAX = 30_000
DEPTH_MAX = 150
"""Deeper than any real selector, and shallow enough for the checker and the closures, which call themselves once or twice a level."""


class TreeNode:
    """`size` and `depth` count what is below, shared parts as often as they occur."""

    __slots__ = ("at", "depth", "size")

    def __init__(self, at: int, *below: TreeNode) -> None:
        self.at = at
        """Position in the text, from 1."""
        self.size: int = 1 + sum(node.size for node in below)
        self.depth: int = 1 + max((node.depth for node in below), default=0)
        if self.size > NODES_MAX:
            raise TooComplex(f"the expression has more than {NODES_MAX} parts", at)
        if self.depth > DEPTH_MAX:
            raise TooComplex(f"must not be nested deeper than {DEPTH_MAX} levels", at)


class Literal(TreeNode):
    __slots__ = ("value",)

    def __init__(self, at: int, value: Any) -> None:
        super().__init__(at)
        self.value = value


class Ident(TreeNode):
    __slots__ = ("name",)

    def __init__(self, at: int, name: str) -> None:
        super().__init__(at)
        self.name = name


class Select(TreeNode):
    """`operand.field`; with `test` it asks whether the field is there (`has`), with `optional` it is `operand.?field`."""

    __slots__ = ("field", "operand", "optional", "test")

    def __init__(
        self, at: int, operand: TreeNode, field: str, *, test: bool = False, optional: bool = False
    ) -> None:
        super().__init__(at, operand)
        self.operand = operand
        self.field = field
        self.test = test
        self.optional = optional


class Call(TreeNode):
    """`function(args)` or `target.function(args)`. Operators are functions: `_+_`, `_[_]`, `_[?_]`, `_?_:_`, `!_`, `-_`, `@in`."""

    __slots__ = ("args", "function", "target")

    def __init__(
        self, at: int, function: str, args: tuple[TreeNode, ...], target: TreeNode | None = None
    ) -> None:
        super().__init__(at, *args, *(() if target is None else (target,)))
        self.function = function
        self.args = args
        self.target = target


class ListNode(TreeNode):
    __slots__ = ("elements", "optional")

    def __init__(
        self, at: int, elements: tuple[TreeNode, ...], optional: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(at, *elements)
        self.elements = elements
        self.optional = optional
        """Indices of elements that are left out if they are none."""


class MapNode(TreeNode):
    __slots__ = ("entries",)

    def __init__(self, at: int, entries: tuple[tuple[TreeNode, TreeNode, bool], ...]) -> None:
        super().__init__(at, *(node for key, value, _ in entries for node in (key, value)))
        self.entries = entries


class Bind(TreeNode):
    """`cel.bind(name, init, result)`, and the other macros that name a value once."""

    __slots__ = ("init", "name", "result")

    def __init__(self, at: int, name: str, init: TreeNode, result: TreeNode) -> None:
        super().__init__(at, init, result)
        self.name = name
        self.init = init
        self.result = result


class Loop(TreeNode):
    """A macro over a list or the keys of a map.

    `kind` is all, exists, exists_one, list, map or entries. `test` decides (for the quantifiers) or filters; `step` makes an element.
    """

    __slots__ = ("kind", "names", "over", "step", "test")

    def __init__(
        self,
        at: int,
        kind: str,
        over: TreeNode,
        names: tuple[str, ...],
        test: TreeNode | None,
        step: TreeNode | None,
    ) -> None:
        super().__init__(at, over, *(node for node in (test, step) if node is not None))
        self.kind = kind
        self.over = over
        self.names = names
        self.test = test
        self.step = step
