"""The grammar of CEL: tokens become a tree, and macros become the loops that they stand for.

    expr     = or ["?" or ":" expr]        or = and {"||" and}        and = relation {"&&" relation}
    relation = sum {("<" | "<=" | ">=" | ">" | "==" | "!=" | "in") sum}
    sum      = product {("+" | "-") product}        product = unary {("*" | "/" | "%") unary}
    unary    = {"!"} member | {"-"} member          member  = primary {"." … | "[" … "]"}

Each rule calls the next, so a pair of parentheses costs a few of Python's frames; `NESTING_MAX` bounds them.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.api.cel import macros
from tidelog.api.cel.errors import InvalidExpression, TooComplex
from tidelog.api.cel.tokens import Token, signed_literal, tokens
from tidelog.api.cel.tree import Call, Ident, ListNode, Literal, MapNode, Select, TreeNode

NESTING_MAX = 50
RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("<", "<=", ">=", ">", "==", "!=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)


def parse(text: str) -> TreeNode:
    """The tree. Raises InvalidExpression."""
    return _Parser(tokens(text)).whole()


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self.tokens = found
        self.position = 0
        self.nesting = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def advance(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def is_sign(self, *texts: str) -> bool:
        token = self.tokens[self.position]
        return token.kind == "sign" and token.text in texts

    def takes(self, text: str) -> bool:
        if not self.is_sign(text):
            return False
        self.position += 1
        return True

    def expect(self, text: str) -> Token:
        if not self.is_sign(text):
            raise self.unexpected(f"expected {text}")
        return self.advance()

    def unexpected(self, why: str) -> InvalidExpression:
        return InvalidExpression(f"syntax error: {why}", self.token.at)

    def whole(self) -> TreeNode:
        node = self.expression()
        if self.token.kind != "end":
            raise self.unexpected("expected an operator or the end")
        return node

    def expression(self) -> TreeNode:
        self.nesting += 1
        if self.nesting > NESTING_MAX:
            raise TooComplex(f"must not be nested deeper than {NESTING_MAX} levels", self.token.at)
        node = self.either()
        if self.is_sign("?"):
            at = self.advance().at
            chosen = self.either()
            self.expect(":")
            node = Call(at, "_?_:_", (node, chosen, self.expression()))
        self.nesting -= 1
        return node

    def either(self) -> TreeNode:
        return self.joined("||", self.both)

    def both(self) -> TreeNode:
        return self.joined("&&", lambda: self.binary(0))

    def joined(self, sign: str, part: Callable[[], TreeNode]) -> TreeNode:
        """One node for the whole chain: it absorbs errors in any order, and does not grow deep."""
        at = self.token.at
        parts = [part()]
        while self.takes(sign):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Call(at, f"_{sign}_", tuple(parts))

    def binary(self, level: int) -> TreeNode:
        if level == len(_LEVELS):
            return self.unary()
        node = self.binary(level + 1)
        while True:
            token = self.token
            if token.text not in _LEVELS[level] or token.kind not in ("sign", "name"):
                return node
            self.position += 1
            name = "@in" if token.text == "in" else f"_{token.text}_"
            node = Call(token.at, name, (node, self.binary(level + 1)))

    def unary(self) -> TreeNode:
        if self.is_sign("!"):
            return self.repeated("!", "!_")
        if self.is_sign("-") and self.tokens[self.position + 1].kind not in ("int", "float"):
            return self.repeated("-", "-_")
        return self.member()

    def repeated(self, sign: str, function: str) -> TreeNode:
        at, count = self.token.at, 0
        while self.takes(sign):
            count += 1
        node = self.member()
        return Call(at, function, (node,)) if count % 2 else node

    def member(self) -> TreeNode:
        node = self.primary()
        while True:
            if self.is_sign("."):
                node = self.selected(node, self.advance().at)
            elif self.is_sign("["):
                at = self.advance().at
                function = "_[?_]" if self.takes("?") else "_[_]"
                node = Call(at, function, (node, self.expression()))
                self.expect("]")
            elif self.is_sign("{") and isinstance(node, (Ident, Select)):
                raise InvalidExpression("messages are not supported", self.token.at)
            else:
                return node

    def selected(self, operand: TreeNode, at: int) -> TreeNode:
        optional = self.takes("?")
        token = self.token
        if token.kind not in ("name", "quoted") or token.text == "in":
            raise self.unexpected("expected the name of a field or function")
        self.position += 1
        if not optional and token.kind == "name" and self.takes("("):
            args = self.arguments(")")
            return macros.receiver(at, token.text, operand, args) or Call(at, token.text, args, operand)
        return Select(at, operand, token.text, optional=optional)

    def arguments(self, closing: str) -> tuple[TreeNode, ...]:
        found: list[TreeNode] = []
        if self.takes(closing):
            return ()
        while True:
            found.append(self.expression())
            if not self.takes(","):
                self.expect(closing)
                return tuple(found)

    def primary(self) -> TreeNode:
        token = self.token
        if token.kind == "literal":
            self.position += 1
            return Literal(token.at, token.value)
        if token.kind in ("int", "float") or self.is_sign("-"):
            negative = self.takes("-")
            if self.token.kind not in ("int", "float"):
                raise self.unexpected("expected a number")
            return Literal(token.at, signed_literal(self.advance(), negative))
        if token.kind == "name" or self.is_sign("."):
            return self.named()
        if self.takes("("):
            node = self.expression()
            self.expect(")")
            return node
        if self.takes("["):
            return self.list(token.at)
        if self.takes("{"):
            return self.map(token.at)
        raise self.unexpected("expected a value" if token.text else "the expression ends too early")

    def named(self) -> TreeNode:
        dot = "." if self.takes(".") else ""
        token = self.advance()
        if token.kind != "name" or token.text in RESERVED:
            raise InvalidExpression(f"reserved identifier or no name: {token.text}", token.at)
        if not self.takes("("):
            return Ident(token.at, dot + token.text)
        args = self.arguments(")")
        return macros.call(token.at, token.text, args) or Call(token.at, dot + token.text, args)

    def list(self, at: int) -> TreeNode:
        elements: list[TreeNode] = []
        optional: set[int] = set()
        self.skip_lone_comma("]")
        while not self.takes("]"):
            if self.takes("?"):
                optional.add(len(elements))
            elements.append(self.expression())
            if not self.takes(","):
                self.expect("]")
                break
        return ListNode(at, tuple(elements), frozenset(optional))

    def skip_lone_comma(self, closing: str) -> None:
        """`[,]` is an empty list, by the grammar."""
        if self.is_sign(",") and self.tokens[self.position + 1].text == closing:
            self.position += 1

    def map(self, at: int) -> TreeNode:
        entries: list[tuple[TreeNode, TreeNode, bool]] = []
        self.skip_lone_comma("}")
        while not self.takes("}"):
            optional = self.takes("?")
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression(), optional))
            if not self.takes(","):
                self.expect("}")
                break
        return MapNode(at, tuple(entries))
