"""Text that is made to be expensive costs no more than its length."""

from __future__ import annotations

import pytest

from tidelog.api.errors import InvalidObjects
from tidelog.api.manifests.documents import read_documents

EVIL = [
    '{"a":"' + '\\"' * 200_000,
    '"' * 200_000,
    '{"' + "\\" * 200_000,
    "{" + " " * 400_000,
    " " * 400_000 + "{",
    "---\n" * 100_000,
    "a: '" + "''" * 200_000,
    "# " * 200_000,
    "a: " + "x " * 200_000,
    '{"a":[' + "[]," * 100_000 + "1]}",
    "{" + ",".join(f'"k{i}":0' for i in range(50_000)) + ',"k0":1}',
]


@pytest.mark.parametrize("data", EVIL, ids=range(len(EVIL)))
def test_hostile_text_is_read_or_refused_in_one_pass(data: str) -> None:
    """Anything that costs the square of the length here would take hours."""
    place = ""
    try:
        read_documents(data, "f")
    except InvalidObjects as error:
        place = error.errors[0].path

    assert place == "" or place.startswith(("line", "text", "document"))
