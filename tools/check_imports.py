"""The import contract of ARCHITECTURE.md, checked on the syntax tree: `python tools/check_imports.py`.

import-linter would do, but needs an `__init__.py` in each root folder, and `queue/__init__.py` would shadow the standard
library's `queue` (docs/decisions/0001). The pure folders are also held to purity: no clock, randomness, I/O or asyncio.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "api": (),
    "eventlog": ("api",),
    "plugins": ("api",),
    "queue": ("api", "plugins.interface", "plugins.events", "plugins.node_info"),
    "scheduler": ("api", "plugins", "queue", "eventlog.records"),
    "daemon": ("api", "eventlog", "plugins", "queue", "scheduler", "daemon", "replay"),
    "replay": ("api", "eventlog", "scheduler", "plugins", "queue"),
}
PURE = ("api", "plugins", "queue", "scheduler")
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


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything a module imports, `from` imports with each name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import; write it out"
            assert node.module is not None
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def breaches(path: Path, folder: str) -> Iterator[str]:
    """One sentence for each import of this file that the contract forbids."""
    where = path.relative_to(ROOT).as_posix()
    allowed = (folder, *MAY_IMPORT[folder])
    for line, name in imports(ast.parse(path.read_text(), where)):
        head, _, rest = name.partition(".")
        if head == "tidelog":
            if not any(rest == a or rest.startswith(a + ".") for a in allowed):
                yield f"{where}:{line}: {folder}/ must not import tidelog.{rest}"
        elif folder in PURE and head in IMPURE_MODULES and (where, head) not in ALLOWED:
            yield f"{where}:{line}: {folder}/ is pure and must not import {head}"


def main() -> int:
    """0 when the contract holds."""
    found = [
        breach
        for folder in MAY_IMPORT
        for path in sorted((ROOT / folder).rglob("*.py"))
        for breach in breaches(path, folder)
    ]
    for breach in found:
        print(breach, file=sys.stderr)
    files = sum(1 for folder in MAY_IMPORT for _ in (ROOT / folder).rglob("*.py"))
    print(f"import contract: {files} files, {len(found)} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
