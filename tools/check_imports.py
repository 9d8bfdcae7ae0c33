"""The import contract, checked on the syntax tree: `python tools/check_imports.py`.

Each folder of the product has a README.md whose line `May import: ` names the folders and modules that its own modules may
import; a folder named there stands for everything below it. A folder's own modules are always allowed, those of its
subfolders are not. The pure folders are also held to purity: no clock, randomness, I/O or asyncio.

import-linter would do, but needs an `__init__.py` in each root folder, and `queue/__init__.py` would shadow the standard
library's `queue` (docs/decisions/0001).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PRODUCT = (
    "api",
    "cli",
    "configuration",
    "daemon",
    "eventlog",
    "framework",
    "kube",
    "page",
    "plugins",
    "queue",
    "replay",
    "scheduler",
    "testing",
)
PURE = ("api", "configuration", "framework", "plugins", "queue", "scheduler")
IMPURE_MODULES = frozenset(
    [
        "aiosqlite",
        "asyncio",
        "datetime",
        "glob",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
        "prometheus_client",
    ]
)
# Where a pure folder needs a module from the list above for something pure, with the reason.
ALLOWED: dict[tuple[str, str], str] = {
    ("api/times.py", "datetime"): "arithmetic on RFC 3339 text; never reads the clock",
}

MAY_IMPORT = re.compile(r"^May import: (.+)$", re.MULTILINE)


class NoContract(Exception):
    """A folder with modules lacks a README.md with a line `May import: `."""


def contract(folder: Path) -> tuple[str, ...]:
    """Return what the modules of this folder may import beside each other, as written in its README.md."""
    page = folder / "README.md"
    line = MAY_IMPORT.search(page.read_text()) if page.exists() else None
    if line is None:
        raise NoContract(f"{page.relative_to(ROOT).as_posix()}: a line `May import: ...` is missing")
    return tuple(re.findall(r"`([a-z0-9_/]+)`", line[1]))


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of everything a module imports, `from` imports with each name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import; write it out"
            assert node.module is not None
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def module_of(name: str) -> str:
    """Return the path without `.py` of the module that a name below `tidelog.` comes from."""
    parts = name.split(".")
    while parts and not (ROOT.joinpath(*parts).with_suffix(".py")).exists():
        parts.pop()
    return "/".join(parts) or name.replace(".", "/")


def breaches(path: Path, allowed: Sequence[str]) -> Iterator[str]:
    """Yield one sentence for each import of this file that its folder's contract forbids."""
    where = path.relative_to(ROOT).as_posix()
    folder = path.parent.relative_to(ROOT).as_posix()
    is_pure = where.split("/")[0] in PURE
    for line, name in imports(ast.parse(path.read_text(), where)):
        head, _, rest = name.partition(".")
        if head == "tidelog":
            module = module_of(rest)
            own = module.rpartition("/")[0] == folder
            if not own and not any(module == a or module.startswith(a + "/") for a in allowed):
                yield f"{where}:{line}: {folder}/ must not import {module}"
        elif is_pure and head in IMPURE_MODULES and (where, head) not in ALLOWED:
            yield f"{where}:{line}: {folder}/ is pure and must not import {head}"


def check() -> Iterator[str]:
    """Yield every breach, contracts that are missing, and contracts that allow what does not exist."""
    for folder in sorted({path.parent for top in PRODUCT for path in (ROOT / top).rglob("*.py")}):
        try:
            allowed = contract(folder)
        except NoContract as missing:
            yield str(missing)
            continue
        for name in allowed:
            if not (ROOT / name).is_dir() and not (ROOT / f"{name}.py").exists():
                yield f"{folder.relative_to(ROOT).as_posix()}/README.md: there is no {name}"
        for path in sorted(folder.glob("*.py")):
            yield from breaches(path, allowed)


def main() -> int:
    """0 when the contract holds."""
    found = list(check())
    for breach in found:
        print(breach, file=sys.stderr)
    files = sum(1 for top in PRODUCT for _ in (ROOT / top).rglob("*.py"))
    print(f"import contract: {files} files, {len(found)} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
