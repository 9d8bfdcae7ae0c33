"""Whatever is thrown at `apply`: one clear answer, no traceback, nothing changed.

The same bytes are also handed to the handler of the socket, as somebody who speaks its language but not its meaning would.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from tests.cli.conftest import Tidelog
from tests.thorough import cases
from tidelog.api.errors import TidelogError
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import KINDS
from tidelog.cli.main import main
from tidelog.daemon.intake.facts import FactService
from tidelog.daemon.intake.messages import VERSION, Apply, write_request
from tidelog.eventlog.log import Log, memory_log
from tidelog.testing.builders import ZONE, pod

Manifest = Callable[..., Path]
EXAMPLES = cases(80, "TIDELOG_FUZZ_EXAMPLES")
"""A bigger number for a longer search."""
fuzz = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)


def digest(path: Path) -> str:
    """Of the files that make the log, without those that only an open database has."""
    files = [path, path.with_name(path.name + ".head")]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


BAD_TEXT = [
    ("", "there are no objects in"),
    ("---\n---\n", "there are no objects in"),
    ("just words", "must be an object with apiVersion and kind"),
    ("a: [", "line 2, column 1"),
    ("a:\n\t- b", "line 2"),
    ("a: 1\na: 2", "key is there twice"),
    ("{", "line 2, column 1"),
    ('{"apiVersion": "v1"}', "kind: Required value"),
    ("apiVersion: v1\nkind: Pdo\n", 'did you mean "Pod"'),
    ("apiVersion: v2\nkind: Pod\n", 'apiVersion: Unsupported value: "v2"'),
    ("apiVersion: apps/v1\nkind: DaemonSet\n", "there are no objects that concern scheduling"),
    ("apiVersion: v1\nkind: Pod\nspec: words\n", "spec: Invalid value"),
    ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: {}}\n", "spec.containers"),
    ("apiVersion: v1\nkind: Pod\nmetadata: {name: A_b}\nspec: {containers: [{name: c}]}\n", "metadata.name"),
    ("apiVersion: v1\nkind: List\nitems: 5\n", "items: object: Invalid value: 5"),
    ("a: &a [*a]", "line 1"),
    (
        "!!python/object/apply:os.system ['true']",
        "tag tag:yaml.org,2002:python/object/apply:os.system is not supported",
    ),
    ("[" * 5000, "nested deeper"),
    ("a: " * 3, "line 1"),
    ('{"a":' * 5000 + "1" + "}" * 5000, "nested deeper"),
]


@pytest.mark.parametrize(("text", "error"), BAD_TEXT)
def test_bad_text_is_refused_with_its_place(two_pods: Tidelog, tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    before = digest(tmp_path / "cluster.db")

    ran = two_pods("apply", "-f", tmp_path / "bad.yaml")

    assert ran.code in (1, 2)
    assert ran.out == ""
    assert error in ran.err
    assert "Traceback" not in ran.err
    assert digest(tmp_path / "cluster.db") == before


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (
            ["apply", "-f", "none.yaml", "--log", "x.db"],
            1,
            "cannot read none.yaml: No such file or directory",
        ),
        (
            ["apply", "-f", "empty", "--log", "x.db"],
            2,
            "there are no manifests (.yaml, .yml, .json) in empty (-R also looks",
        ),
        (
            ["apply", "-f", "empty", "-R", "--log", "x.db"],
            2,
            "there are no manifests (.yaml, .yml, .json) in empty\n",
        ),
        (["apply"], 2, "-f/--filename"),
        (["apply", "-f", "good.yaml", "--log", "words.txt"], 1, "words.txt: is not a tidelog log"),
        (["get", "pods", "--log", "words.txt"], 1, "words.txt: is not a tidelog log"),
        (["apply", "-f", "good.yaml", "--log", "empty"], 1, "empty: is a directory, not a log"),
        (["apply", "-f", "good.yaml", "--log", "none/x.db"], 1, "there is no directory"),
        (["get", "pods", "--log", "none.db"], 1, "none.db: there is no such log"),
        (["apply", "-f", "good.yaml", "--log", "x.db\0"], 1, ""),
    ],
)
def test_bad_places_are_named(
    tidelog: Tidelog,
    manifest: Manifest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    error: str,
) -> None:
    manifest(pod("web-1").build(), name="good.yaml")
    (tmp_path / "empty" / "below").mkdir(parents=True)
    (tmp_path / "words.txt").write_text("only words, no log\n" * 100)
    monkeypatch.chdir(tmp_path)

    ran = tidelog(*words)

    assert ran.code == code
    assert error in ran.err
    assert ran.err.count("\n") == 1
    assert (tmp_path / "words.txt").read_text() == "only words, no log\n" * 100


@pytest.mark.unreplayed("the log is damaged")
def test_log_of_a_newer_format_is_refused(two_pods: Tidelog, tmp_path: Path, monkeypatch: Any) -> None:
    from tidelog.eventlog import database

    monkeypatch.setattr(database, "FORMAT", 0)
    ran = two_pods("get", "pods")

    assert ran.code == 1
    assert "newer" in ran.err


def test_invalid_object_changes_nothing(two_pods: Tidelog, manifest: Manifest, tmp_path: Path) -> None:
    before = digest(tmp_path / "cluster.db")
    bad = pod("web-3").spread(ZONE, max_skew=0, min_domains=0).priority_class("none").build()

    ran = two_pods("apply", "-f", manifest(bad, name="bad.yaml"))

    assert ran.code == 1
    for path in ("spec.priorityClassName", "[0].maxSkew", "[0].minDomains"):
        assert path in ran.err
    assert digest(tmp_path / "cluster.db") == before


# --- random input ---------------------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
FIELDS = [
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "namespace",
    "labels",
    "spec",
    "items",
    "containers",
    "resources",
    "requests",
    "cpu",
    "value",
    "selector",
    "topologySpreadConstraints",
    "maxSkew",
    "status",
    "conditions",
]
field_names = st.sampled_from(FIELDS) | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(field_names, inner, max_size=5),
    max_leaves=20,
)


@st.composite
def almost_manifests(draw: st.DrawFn) -> Any:
    """Of a known kind, with anything inside."""
    kind = draw(st.sampled_from(KINDS))
    name = draw(st.sampled_from(["web-1", "Web_1", "", 7]))
    body = draw(st.dictionaries(field_names, values, max_size=4))
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, **body}


data = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")),
    values.map(lambda value: json.dumps(value).encode()),
    almost_manifests().map(lambda value: json.dumps(value).encode()),
    st.lists(almost_manifests(), max_size=3).map(
        lambda items: yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}).encode()
    ),
    st.lists(values, max_size=3).map(lambda documents: yaml.safe_dump_all(documents).encode()),
)


@fuzz
@given(data=data)
@example(data=b'{"kind":"\\u001b[2J"}')
def test_no_bytes_crash_apply_or_change_the_log_when_refused(
    two_pods: Tidelog, tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(data))
    before = digest(tmp_path / "cluster.db")
    try:
        code = main(["apply", "-f", "-", "--log", str(tmp_path / "cluster.db")])
    finally:
        sys.stdin = stdin
    captured = capsys.readouterr()

    assert code in (0, 1, 2)
    assert "Traceback" not in captured.err
    assert "internal error" not in captured.err
    assert all(line.isprintable() for line in (captured.err + captured.out).split("\n"))
    if code:
        assert captured.out == ""
        said = [line for line in captured.err.split("\n") if line.startswith("tidelog: ")]
        assert [line.startswith("tidelog: error: ") for line in said] == [False] * (len(said) - 1) + [True]
        assert digest(tmp_path / "cluster.db") == before


# --- the same through the handler of the socket -----------------------------------------------------------------------

wire_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
verbs = st.sampled_from(["apply", "delete", "patch-condition", "dance"])
wire_fields = st.sampled_from(
    ["objects", "sources", "namespace", "keys", "key", "type", "status", "grace_period_seconds", "extra"]
)
messages = wire_values | st.fixed_dictionaries(
    {
        "version": st.sampled_from([VERSION, VERSION, VERSION, 1, 0, "2", None]),
        "facts": st.builds(
            lambda verb, fields: {"verb": verb, **fields},
            verbs,
            st.dictionaries(wire_fields, wire_values | data, max_size=4),
        ),
    },
    optional={"dry_run": st.booleans(), "feature_gates": wire_values},
)
apply_messages = st.lists(data, max_size=3).map(
    lambda objects: {"version": VERSION, "facts": {"verb": "apply", "objects": objects}}
)


@fuzz
@given(message=messages | apply_messages)
def test_no_message_crashes_the_handler_or_changes_the_log_when_refused(message: Any) -> None:
    answer, before, after = asyncio.run(handled(message))

    if isinstance(answer, TidelogError):
        assert str(answer)
        assert before == after
    elif "refusals" in answer:
        assert all(refusal["errors"] for refusal in answer["refusals"])
        assert before == after
    else:
        assert after - before == sum(1 for result in answer.get("results", ()) if result.get("seq"))


async def handled(message: Any) -> tuple[Any, int, int]:
    """The answer, and the newest record before and after."""
    async with await memory_log() as log:
        before = await seeded(log)
        service = await FactService.start(log, FeatureGates())
        try:
            answer = await service.handle(Raw(msgspec.msgpack.encode(message)))
        except TidelogError as error:
            answer = error
        return answer, before, log.head.seq


async def seeded(log: Log) -> int:
    service = await FactService.start(log, FeatureGates())
    request = write_request(Apply(objects=[pod("web-1").build()]))
    answer = await service.handle(Raw(msgspec.msgpack.encode(request)))
    assert [result["action"] for result in answer["results"]] == ["created"]
    return log.head.seq
