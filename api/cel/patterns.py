"""Regular expressions with RE2's syntax and meaning, matched in time linear in the text.

A stranger's pattern never reaches Python's `re`, which can be made to run for years. A pattern becomes a program for a simple machine
that follows all of its branches at once, one character after the other (Thompson, Pike); the first branch wins, as in Perl.

    a(b|c)*d    →    char a · split → (char b | char c) → back to split · char d · match

Not supported, and refused by name: scripts (`\\p{Greek}`); general categories (`\\pL`, `\\p{Nd}`) are.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from tidelog.api.cel.errors import EvaluationError

PROGRAM_MAX = 4_000
REPEAT_MAX = 1_000
NESTING_MAX = 100
_CATEGORIES = frozenset(
    [
        "C",
        "Cc",
        "Cf",
        "Co",
        "Cs",
        "L",
        "Ll",
        "Lm",
        "Lo",
        "Lt",
        "Lu",
        "M",
        "Mc",
        "Me",
        "Mn",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Pe",
        "Pf",
        "Pi",
        "Po",
        "Ps",
        "S",
        "Sc",
        "Sk",
        "Sm",
        "So",
        "Z",
        "Zl",
        "Zp",
        "Zs",
    ]
)
Ranges = tuple[tuple[int, int], ...]
_PERL: dict[str, Ranges] = {
    "d": ((48, 57),),
    "s": ((9, 10), (12, 13), (32, 32)),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
}
_POSIX: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": ((48, 57),),
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _PERL["w"],
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


def _negated(ranges: Ranges) -> Ranges:
    found, start = [], 0
    for low, high in _merged(ranges):
        if start < low:
            found.append((start, low - 1))
        start = high + 1
    if start <= 0x10FFFF:
        found.append((start, 0x10FFFF))
    return tuple(found)


def _merged(ranges: Ranges) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


class _Class(NamedTuple):
    """The characters that one step accepts."""

    ranges: Ranges
    categories: tuple[tuple[str, bool], ...] = ()
    """General categories, and whether they are left out."""
    negated: bool = False
    folded: bool = False

    def matcher(self) -> Callable[[str], bool]:
        merged = _merged(self.ranges)
        lows, highs = [low for low, _ in merged], [high for _, high in merged]

        def has(character: str) -> bool:
            index = bisect_right(lows, ord(character)) - 1
            if index >= 0 and ord(character) <= highs[index]:
                return True
            if not self.categories:
                return False
            own = unicodedata.category(character)
            return any(
                (own == name or own[0] == name or name == "Any") != out for name, out in self.categories
            )

        def accepts(character: str) -> bool:
            found = any(map(has, _orbit(character))) if self.folded else has(character)
            return found != self.negated

        return accepts


@lru_cache(maxsize=1)
def _orbits() -> dict[str, str]:
    """Characters that simple case folding takes for one another, but for the letters of ASCII."""
    groups: dict[str, list[str]] = {}
    for code in range(0x80, 0x1E944):
        character = chr(code)
        if character.islower() or character.isupper() or character.istitle():
            folded = character.upper()
            folded = folded if len(folded) == 1 else character
            lowered = character.lower()
            root = folded if folded != character or len(lowered) > 1 else lowered.upper()
            groups.setdefault(root if len(root) == 1 else character, []).append(character)
    return {one: "".join(sorted({*members, root})) for root, members in groups.items() for one in members}


@lru_cache(maxsize=4096)
def _orbit(character: str) -> str:
    if character < "\x80":
        if not character.isalpha():
            return character
        more = {"k": "\u212a", "s": "\u017f"}.get(character.lower(), "")
        return character.lower() + character.upper() + more
    if character in "\u212a\u017f":
        return _orbit("k" if character == "\u212a" else "s")
    return character if character in "\u0130\u0131" else _orbits().get(character, character)


# --- the program ---------------------------------------------------------------------------------------------------------

_CHAR, _SPLIT, _ASSERT, _MATCH, _JUMP = range(5)
_Instruction = list[int]
"""[operation, first target or kind of assertion or index of the class, second target]."""


class TextPattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        parser = _Parser(text)
        parser.alternatives(_Flags(), 0)
        if parser.position < len(text):
            raise EvaluationError("error parsing regexp: unexpected )")
        parser.emit(_MATCH)
        self._program = parser.program
        self._accepts = [one.matcher() for one in parser.classes]

    def cost(self, length: int) -> int:
        """The most that a search in a text of this length can cost."""
        return 1 + len(self._program) * (length + 1) // 4

    def search(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """The leftmost match from a position on, as start and end."""
        program, accepts = self._program, self._accepts
        found: tuple[int, int] | None = None
        threads: list[tuple[int, int]] = []
        for position in range(start, len(text) + 1):
            seen: set[int] = set()
            ready: list[tuple[int, int]] = []
            for pc, begun in threads:
                self._follow(pc, begun, position, text, seen, ready)
            if found is None:
                self._follow(0, position, position, text, seen, ready)
            threads = []
            character = text[position] if position < len(text) else ""
            for pc, begun in ready:
                operation, what, _ = program[pc]
                if operation == _MATCH:
                    found = (begun, position)
                    break
                if character and accepts[what](character):
                    threads.append((pc + 1, begun))
            if not threads and found is not None:
                break
        return found

    def _follow(
        self, pc: int, begun: int, position: int, text: str, seen: set[int], ready: list[tuple[int, int]]
    ) -> None:
        """Add where the machine can be without reading a character, most wanted first."""
        waiting = [pc]
        while waiting:
            pc = waiting.pop()
            if pc in seen:
                continue
            seen.add(pc)
            operation, first, second = self._program[pc]
            if operation == _JUMP:
                waiting.append(first)
            elif operation == _SPLIT:
                waiting += (second, first)
            elif operation == _ASSERT:
                if _holds(first, text, position):
                    waiting.append(pc + 1)
            else:
                ready.append((pc, begun))

    def all(self, text: str, count: int = -1) -> Iterator[tuple[int, int]]:
        """Matches that do not overlap, at most `count` if that is not negative; an empty one next to another is none."""
        position, before = 0, -1
        while position <= len(text) and count != 0:
            found = self.search(text, position)
            if found is None:
                return
            start, end = found
            if end > start or start != before:
                yield found
                count -= 1
            before = end
            position = end if end > position else position + 1


_TEXT_START, _TEXT_END, _LINE_START, _LINE_END, _WORD, _NOT_WORD = range(6)


def _holds(kind: int, text: str, position: int) -> bool:
    if kind == _TEXT_START:
        return position == 0
    if kind == _TEXT_END:
        return position == len(text)
    if kind == _LINE_START:
        return position == 0 or text[position - 1] == "\n"
    if kind == _LINE_END:
        return position == len(text) or text[position] == "\n"
    before = position > 0 and _is_word(text[position - 1])
    after = position < len(text) and _is_word(text[position])
    return (before != after) == (kind == _WORD)


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


# --- the syntax ----------------------------------------------------------------------------------------------------------


class _Flags(NamedTuple):
    fold: bool = False
    lines: bool = False
    dot_all: bool = False
    lazy: bool = False


class _Parser:
    """Emits the program while it reads. A repeated part is emitted again for each time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.program: list[_Instruction] = []
        self.classes: list[_Class] = []

    def fail(self, why: str) -> EvaluationError:
        return EvaluationError(f"error parsing regexp: {why}")

    def emit(self, operation: int, first: int = 0, second: int = 0) -> int:
        if len(self.program) >= PROGRAM_MAX:
            raise self.fail("expression too large")
        self.program.append([operation, first, second])
        return len(self.program) - 1

    def emit_class(self, found: _Class) -> None:
        self.classes.append(found)
        self.emit(_CHAR, len(self.classes) - 1)

    def peek(self, count: int = 1) -> str:
        return self.text[self.position : self.position + count]

    def takes(self, text: str) -> bool:
        if not self.text.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def next(self, why: str) -> str:
        if self.position >= len(self.text):
            raise self.fail(why)
        self.position += 1
        return self.text[self.position - 1]

    def alternatives(self, flags: _Flags, depth: int) -> None:
        """One or more sequences; leaves the position at the end or at a closing parenthesis."""
        if depth > NESTING_MAX:
            raise self.fail("expression nests too deeply")
        ends: list[int] = []
        while True:
            start = len(self.program)
            flags = self.sequence(flags, depth)
            if not self.takes("|"):
                break
            self.insert(start, _SPLIT, start + 1, 0)
            ends.append(self.emit(_JUMP))
            self.program[start][2] = len(self.program)
        for end in ends:
            self.program[end][1] = len(self.program)

    def insert(self, at: int, operation: int, first: int, second: int) -> None:
        """Put an instruction before what was emitted from `at` on, and move its targets."""
        self.emit(_JUMP)
        moved = self.program[at:-1]
        for instruction in moved:
            if instruction[0] in (_SPLIT, _JUMP):
                instruction[1] += 1
                instruction[2] += instruction[0] == _SPLIT
        self.program[at:] = [[operation, first, second], *moved]

    def sequence(self, flags: _Flags, depth: int) -> _Flags:
        """Parts with their repetitions. Returns the flags, which the sequence may have changed for those after it."""
        while self.position < len(self.text) and self.peek() not in ("|", ")"):
            start = len(self.program)
            if self.takes("\\Q"):
                self.quoted(flags)
                continue
            changed: _Flags | None = None
            if self.takes("("):
                changed = self.group(flags, depth)
            else:
                self.atom(flags)
            if changed is not None:
                flags = changed
                if self.peek() in ("*", "+", "?"):
                    raise self.fail(f"missing argument to repetition operator: `{self.peek()}`")
                continue
            self.repeats(start, flags)
        return flags

    def quoted(self, flags: _Flags) -> None:
        end = self.text.find("\\E", self.position)
        stop = len(self.text) if end < 0 else end
        start = -1
        for character in self.text[self.position : stop]:
            start = len(self.program)
            self.literal(ord(character), flags)
        self.position = stop if end < 0 else end + 2
        if start >= 0:
            self.repeats(start, flags)

    def literal(self, code: int, flags: _Flags) -> None:
        self.emit_class(_Class(((code, code),), folded=flags.fold))

    def atom(self, flags: _Flags) -> None:
        character = self.next("")
        if character == ".":
            self.emit_class(_Class((), negated=True) if flags.dot_all else _Class(((10, 10),), negated=True))
        elif character == "^":
            self.emit(_ASSERT, _LINE_START if flags.lines else _TEXT_START)
        elif character == "$":
            self.emit(_ASSERT, _LINE_END if flags.lines else _TEXT_END)
        elif character == "[":
            self.emit_class(self.char_class(flags))
        elif character == "\\":
            self.escape(flags)
        elif character in "*+?" or (character == "{" and self.counts() is not None):
            raise self.fail(f"missing argument to repetition operator: `{character}`")
        else:
            self.literal(ord(character), flags)

    def escape(self, flags: _Flags) -> None:
        character = self.peek()
        kinds = {"A": _TEXT_START, "z": _TEXT_END, "b": _WORD, "B": _NOT_WORD}
        if character in kinds and character:
            self.position += 1
            self.emit(_ASSERT, kinds[character])
            return
        found = self.class_escape()
        if found is None:
            self.literal(self.code_escape(), flags)
        else:
            self.emit_class(found._replace(folded=flags.fold))

    def class_escape(self) -> _Class | None:
        r"""\d, \pL and the like, behind the backslash."""
        letter = self.peek()
        if letter and letter in "dswDSW":
            self.position += 1
            ranges = _PERL[letter.lower()]
            return _Class(_negated(ranges) if letter.isupper() else ranges)
        if not letter or letter not in "pP":
            return None
        self.position += 1
        name = self.next("invalid character class range")
        if name == "{":
            end = self.text.find("}", self.position)
            if end < 0:
                raise self.fail("invalid character class range")
            name, self.position = self.text[self.position : end], end + 1
        out = (letter == "P") != name.startswith("^")
        name = name.removeprefix("^")
        if name not in _CATEGORIES and name != "Any":
            raise self.fail(f"character class {name!r} is unknown or not supported")
        return _Class((), ((name, out),))

    def code_escape(self) -> int:
        """One character, behind the backslash."""
        letter = self.next("trailing backslash at end of expression")
        if letter in "1234567":
            if not self.peek() or self.peek() not in "01234567":
                raise self.fail(f"invalid escape sequence: `\\{letter}`")
            return self.octal(letter)
        if letter == "0":
            return self.octal(letter)
        if letter == "x":
            return self.hexadecimal()
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter.isascii() and not letter.isalnum():
            return ord(letter)
        raise self.fail(f"invalid escape sequence: `\\{letter}`")

    def octal(self, digits: str) -> int:
        while len(digits) < 3 and self.peek() and self.peek() in "01234567":
            digits += self.next("")
        return int(digits, 8)

    def hexadecimal(self) -> int:
        if self.takes("{"):
            end = self.text.find("}", self.position)
            digits = self.text[self.position : end] if end >= 0 else ""
            self.position = end + 1
        else:
            digits = self.peek(2) if len(self.peek(2)) == 2 else ""
            self.position += 2
        is_number = digits.isascii() and digits.isalnum() and len(digits) <= 8
        code = int(digits, 16) if is_number and all(c in "0123456789abcdefABCDEF" for c in digits) else -1
        if not 0 <= code <= 0x10FFFF:
            raise self.fail("invalid escape sequence: `\\x`")
        return code

    def char_class(self, flags: _Flags) -> _Class:
        negated = self.takes("^")
        ranges: list[tuple[int, int]] = []
        categories: list[tuple[str, bool]] = []
        first = True
        while first or self.peek() != "]":
            first = False
            if self.peek(2) == "[:":
                posix = self.posix()
                if posix is not None:
                    ranges += posix
                    continue
            if self.peek() == "\\":
                self.position += 1
                found = self.class_escape()
                if found is not None:
                    ranges += found.ranges
                    categories += found.categories
                    continue
                low = self.code_escape()
            else:
                low = ord(self.next("missing closing ]"))
            ranges.append((low, self.upper_end(low)))
        self.position += 1
        return _Class(tuple(ranges), tuple(categories), negated, flags.fold)

    def posix(self) -> Ranges | None:
        end = self.text.find(":]", self.position + 2)
        if end < 0:
            return None
        name = self.text[self.position + 2 : end]
        found = _POSIX.get(name.removeprefix("^"))
        if found is None:
            raise self.fail(f"invalid character class range: `[:{name}:]`")
        self.position = end + 2
        return _negated(found) if name.startswith("^") else found

    def upper_end(self, low: int) -> int:
        if self.peek() != "-" or self.peek(2) in ("-", "-]"):
            return low
        self.position += 1
        if self.takes("\\"):
            high = self.code_escape()
        else:
            high = ord(self.next("missing closing ]"))
        if high < low:
            raise self.fail("invalid character class range")
        return high

    def group(self, flags: _Flags, depth: int) -> _Flags | None:
        """After the parenthesis. Flags for what follows, if that is all the group says."""
        inner = flags
        if self.takes("?P<") or (self.peek(2) == "?<" and self.takes("?<")):
            self.name()
        elif self.takes("?"):
            changed, closes = self.flags(flags)
            if closes:
                return changed
            inner = changed
        self.alternatives(inner, depth + 1)
        if not self.takes(")"):
            raise self.fail("missing closing )")
        return None

    def name(self) -> None:
        end = self.text.find(">", self.position)
        name = self.text[self.position : end] if end >= 0 else ""
        if not name or not all(_is_word(c) for c in name):
            raise self.fail("invalid named capture")
        self.position = end + 1

    def flags(self, flags: _Flags) -> tuple[_Flags, bool]:
        """`i-s:` or `i)`, behind the question mark."""
        on, seen_minus, seen_flag = True, False, False
        names = {"i": "fold", "m": "lines", "s": "dot_all", "U": "lazy"}
        while True:
            letter = self.next("missing closing )")
            if letter in names:
                flags = flags._replace(**{names[letter]: on})
                seen_flag = True
            elif letter == "-" and not seen_minus:
                on, seen_minus, seen_flag = False, True, False
            elif letter in ":)" and (seen_flag or not seen_minus):
                return flags, letter == ")"
            else:
                raise self.fail("invalid or unsupported Perl syntax")

    def counts(self) -> tuple[int, int] | None:
        """`n}`, `n,}` or `n,m}` behind the brace, consumed if it is one; -1 is no upper end."""
        end = self.text.find("}", self.position)
        body = self.text[self.position : end] if end >= 0 else ""
        low, comma, high = body.partition(",")
        if not _is_count(low) or (high and not _is_count(high)):
            return None
        self.position = end + 1
        least = min(int(low), REPEAT_MAX + 1) if len(low) < 9 else REPEAT_MAX + 1
        most = least if not comma else -1 if not high else int(high) if len(high) < 9 else REPEAT_MAX + 1
        if least > REPEAT_MAX or most > REPEAT_MAX or 0 <= most < least:
            raise self.fail("invalid repeat count")
        return least, most

    def repeats(self, start: int, flags: _Flags) -> None:
        """The repetition behind what was emitted from `start` on; one of one is an error, as in Perl."""
        sign = self.peek()
        if not sign or sign not in "*+?{":
            return
        self.position += 1
        if sign == "{":
            counts = self.counts()
            if counts is None:
                self.position -= 1
                return
        else:
            counts = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[sign]
        lazy = self.takes("?") != flags.lazy
        self.repeat(start, *counts, lazy)
        after = self.position
        if self.peek() in ("*", "+", "?") and self.peek():
            raise self.fail("invalid nested repetition operator")
        if self.takes("{") and self.counts() is not None:
            raise self.fail("invalid nested repetition operator")
        self.position = after

    def repeat(self, start: int, least: int, most: int, lazy: bool) -> None:
        body = [list(instruction) for instruction in self.program[start:]]
        del self.program[start:]
        if least > 1 and len(body) * least > PROGRAM_MAX:
            raise self.fail("expression too large")
        splits: list[int] = []
        if most < 0:
            # x{n,} is n - 1 times x and x+, and x* is (x+)?: so an x that may be empty takes what it takes in RE2.
            for _ in range(least - 1):
                self.copy(body, start)
            if least == 0:
                splits.append(self.emit(_SPLIT))
            again = len(self.program)
            self.copy(body, start)
            past = self.emit(_SPLIT) + 1
            self.program[-1][1:] = [past, again] if lazy else [again, past]
        else:
            for _ in range(least):
                self.copy(body, start)
            for _ in range(most - least):
                splits.append(self.emit(_SPLIT))
                self.copy(body, start)
        for split in splits:
            into, past = split + 1, len(self.program)
            self.program[split][1:] = [past, into] if lazy else [into, past]

    def copy(self, body: list[_Instruction], start: int) -> None:
        shift = len(self.program) - start
        for operation, first, second in body:
            moves = operation in (_SPLIT, _JUMP)
            self.emit(operation, first + shift * moves, second + shift * (operation == _SPLIT))


def _is_count(text: str) -> bool:
    return bool(text) and text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")


@lru_cache(maxsize=512)
def pattern_of(text: str) -> TextPattern:
    """Compile a pattern. Raises EvaluationError."""
    return TextPattern(text)
