"""Small, deliberate mistakes in a module, made on its syntax tree: what `tools/mutation_score.py` lets the tests find.

A mutant differs from the module in one place: a comparison or condition is turned round, a boundary moved, a constant is one off, a
statement left out, two arguments change places, something else is returned. Not mutated are annotations, decorators, assertions (they
are checks themselves), the text of messages and what is raised, and the options of a class.

Finding the mutants costs a walk through the tree and a line of source for each; only `Mutant.code` compiles.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
"""Each with its boundary moved, where it has one, and turned round."""

OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any"}
NOT_SWAPPED = {*OPPOSITES, "isinstance", "issubclass", "getattr", "setattr", "hasattr", "attrgetter", "cast"}
"""Calls whose arguments may change places, or of which every test would notice."""

NOT_MUTATED = {
    ast.ClassDef: ("decorator_list", "bases", "keywords"),
    ast.FunctionDef: ("decorator_list", "returns"),
    ast.AnnAssign: ("target", "annotation"),
    ast.arg: ("annotation",),
    ast.Raise: ("exc", "cause"),
}
BLOCKS = {
    "body": [ast.Pass()],
    "orelse": [],
    "finalbody": [],
    "handlers": [],
    "cases": [],
    "decorator_list": [],
}


class Edit(NamedTuple):
    """Another node in a place of the tree."""

    parent: ast.AST
    field: str
    position: int | None
    """In the field, if that is a list."""
    old: ast.AST
    new: ast.AST

    @contextmanager
    def done(self) -> Iterator[None]:
        """The tree is changed, for a while."""
        self._put(self.new)
        try:
            yield
        finally:
            self._put(self.old)

    def _put(self, node: ast.AST) -> None:
        if self.position is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.position] = node


class Scope(NamedTuple):
    """Where in the module a node is."""

    name: str = ""
    """The qualified name of the function or class."""
    inside: bool = False
    """In the body of a function: not evaluated when the module is imported."""
    predicate: bool = False
    """The function returns a truth value."""
    statement: ast.AST | None = None
    """The innermost one: a simple one, or a compound one in whose head the node is."""


@dataclass(frozen=True, eq=False)
class Mutant:
    """One change to one module."""

    path: str
    """From the root, with slashes."""
    name: str
    """Of the function or class."""
    inside: bool
    """In the body of a function: putting other code into the function makes the mutant."""
    lines: range
    """Of what is changed."""
    first_line: int
    """Of the statement."""
    before: str
    """The statement, or the head of a compound one."""
    after: str
    tree: ast.Module
    edit: Edit

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The mutant's identity, wherever in the file it stands."""
        return self.path, self.name, self.before, self.after

    def code(self, filename: str) -> CodeType:
        """The whole mutated module, compiled under this name. Every line keeps its number."""
        with self.edit.done():
            return compile(self.tree, filename, "exec", dont_inherit=True)

    def describe(self) -> str:
        """Where it is, and what changes."""
        return f"{self.path}:{self.lines[0]} {self.name}\n  - {self.before}\n  + {self.after}"


def mutants(root: Path, path: Path) -> list[Mutant]:
    """All of a module, in the order of its lines. Of those that read alike in one line the first counts."""
    tree = ast.parse(path.read_text(), str(path))
    where = path.relative_to(root).as_posix()
    found: dict[tuple[object, ...], Mutant] = {}
    for scope, edit in _walk(tree, Scope()):
        mutant = _mutant(where, tree, scope, edit)
        if mutant.before != mutant.after:
            found.setdefault((mutant.key, mutant.lines[0]), mutant)
    return sorted(found.values(), key=lambda mutant: mutant.lines[0])


def _mutant(path: str, tree: ast.Module, scope: Scope, edit: Edit) -> Mutant:
    statement, old = scope.statement, edit.old
    assert statement is not None
    before = _head(statement)
    if old is statement:
        after = _head(edit.new)
    else:
        with edit.done():
            after = _head(statement)
    lines = range(_line(old), (getattr(old, "end_lineno", None) or _line(old)) + 1)
    return Mutant(path, scope.name, scope.inside, lines, _line(statement), before, after, tree, edit)


def _line(node: ast.AST) -> int:
    """A `case` and a comprehension have no line of their own."""
    return next(n.lineno for n in ast.walk(node) if hasattr(n, "lineno"))


def _head(statement: ast.AST) -> str:
    """The statement's source; of a compound one only the line that ends with the colon."""
    bare = copy.copy(statement)
    for block, empty in BLOCKS.items():
        if isinstance(getattr(bare, block, None), list):
            setattr(bare, block, empty)
    return ast.unparse(bare).strip().removesuffix("\n    pass")


def _walk(node: ast.AST, scope: Scope) -> Iterator[tuple[Scope, Edit]]:
    """Every edit at or below the children of the node."""
    skipped = next((fields for kind, fields in NOT_MUTATED.items() if isinstance(node, kind)), ())
    for field, value in ast.iter_fields(node):
        if field in skipped:
            continue
        for position, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or _is_spared(child):
                continue
            below = _scope_of(child, _within(node, field, scope))
            place = (node, field, position if isinstance(value, list) else None, child)
            for new in _replacements(field, child, below):
                yield below, Edit(*place, ast.copy_location(new, child))
            yield from _walk(child, below)


def _is_spared(node: ast.AST) -> bool:
    """Assertions, messages, docstrings, and what only the type checker reads."""
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _within(node: ast.AST, field: str, scope: Scope) -> Scope:
    """The scope of a field of the node."""
    match node:
        case ast.FunctionDef(name=name, returns=returns) if field == "body":
            predicate = isinstance(returns, ast.Name) and returns.id == "bool"
            return scope._replace(name=f"{scope.name}.{name}".lstrip("."), inside=True, predicate=predicate)
        case ast.ClassDef(name=name) if field == "body":
            return scope._replace(name=f"{scope.name}.{name}".lstrip("."))
        case ast.Lambda() if field == "body":
            return scope._replace(inside=True)
    return scope


def _scope_of(node: ast.AST, scope: Scope) -> Scope:
    return scope._replace(statement=node) if isinstance(node, ast.stmt | ast.match_case) else scope


def _replacements(field: str, node: ast.AST, scope: Scope) -> Iterator[ast.AST]:
    """Return the nodes that may stand in the node's place."""
    if isinstance(node, ast.stmt):
        yield from _statements(node, scope)
    elif isinstance(node, ast.expr):
        yield from _expressions(node)
        is_condition = field in ("test", "ifs", "guard")
        if is_condition and not isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp):
            yield ast.UnaryOp(ast.Not(), node)


def _statements(node: ast.stmt, scope: Scope) -> Iterator[ast.stmt]:
    match node:
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            values: tuple[object, ...] = (True, False) if scope.predicate else (None,)
            yield from (ast.Return(ast.copy_location(ast.Constant(value), node)) for value in values)
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete() | ast.Raise():
            yield ast.Pass()
        case ast.Assign(targets=targets) if scope.inside and not scope.name.endswith("__init__"):
            if all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
                yield ast.Pass()


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(ops=ops):
            for position, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    yield _with(node, ops=[*ops[:position], other(), *ops[position + 1 :]])
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(op=op, left=left, right=right) if type(op) in OPERATORS:
            if not (_is_sequence(left) or _is_sequence(right)):
                yield _with(node, op=OPERATORS[type(op)]())
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Call():
            yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[ast.expr]:
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    if isinstance(node.func, ast.Name) and name in OPPOSITES:
        yield _with(node, func=ast.copy_location(ast.Name(OPPOSITES[name], ast.Load()), node.func))
    arguments = node.args
    if name in NOT_SWAPPED or any(isinstance(argument, ast.Starred) for argument in arguments):
        return
    for second in range(1, len(arguments)):
        swapped = [
            *arguments[: second - 1],
            arguments[second],
            arguments[second - 1],
            *arguments[second + 1 :],
        ]
        yield _with(node, args=swapped)


def _is_sequence(node: ast.expr) -> bool:
    """Then `-` is an error that every test would notice."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, ast.Tuple | ast.List | ast.ListComp | ast.JoinedStr)


def _with(node: ast.expr, **fields: object) -> ast.expr:
    """The node with other fields."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other
