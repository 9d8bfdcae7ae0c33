"""What deploy/ holds can be read by whom it is for, and speaks of metrics, verbs and folders that there are."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tidelog.api.times import parse_duration
from tidelog.cli import main as cli
from tidelog.daemon.metrics.families import Description
from tidelog.daemon.metrics.metrics import Metrics, Statistics
from tidelog.daemon.metrics.pod_resources import DESCRIPTIONS

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"

Json = dict[str, Any]


# --- expressions ---------------------------------------------------------------------------------------------------------

KEYWORDS = {"by", "without", "and", "or", "unless", "on", "ignoring"}
FROM_THE_SCRAPE = {"job", "instance"}
NOT_OURS = {"up", "process_resident_memory_bytes"}


class Uses(NamedTuple):
    """What an expression of PromQL mentions."""

    metrics: list[str]
    selected: list[tuple[str, str]]
    """(metric, label) of each matcher."""
    grouped: list[str]


def uses(expression: str) -> Uses:
    """Enough of PromQL for our rules: selectors, aggregations, functions, comparisons."""
    assert expression.count("(") == expression.count(")")
    assert expression.count('"') % 2 == 0
    text = re.sub(r'"[^"]*"', '""', expression)
    selected = [
        (metric, label)
        for metric, matchers in re.findall(r"([a-z_:]\w*)\{([^}]*)\}", text)
        for label in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*""', matchers)
    ]
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", text)
    grouped = [
        label for labels in re.findall(r"\bby\s*\(([^)]*)\)", text) for label in re.findall(r"\w+", labels)
    ]
    text = re.sub(r"\bby\s*\([^)]*\)", "", text)
    names = re.findall(r"\b([a-z_:][\w:]*)\b(?!\s*\()", text)
    return Uses([name for name in names if name not in KEYWORDS], selected, grouped)


def series() -> dict[str, Description]:
    """Every name under which something is exposed."""
    found: dict[str, Description] = {}
    for d in (*Metrics(Statistics).descriptions, *DESCRIPTIONS):
        suffixes = ("_bucket", "_sum", "_count") if d.kind == "histogram" else ("",)
        found.update({d.name + suffix: d for suffix in suffixes})
    return found


def labels_of(metric: str) -> set[str]:
    if metric in NOT_OURS:
        return FROM_THE_SCRAPE
    return {*series()[metric].labels, *FROM_THE_SCRAPE, *(["le"] if metric.endswith("_bucket") else [])}


def rules() -> list[Json]:
    page = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
    return [rule for group in page["groups"] for rule in group["rules"]]


def dashboard() -> Json:
    page: Json = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    return page


def panels() -> list[Json]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    yield from ((rule["alert"], rule["expr"]) for rule in rules())
    for panel in panels():
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_expression_uses_metrics_and_labels_that_are_exposed(where: str, expression: str) -> None:
    used = uses(expression)

    assert used.metrics
    assert [metric for metric in used.metrics if metric not in {*series(), *NOT_OURS}] == []
    assert [(metric, label) for metric, label in used.selected if label not in labels_of(metric)] == []
    known = set().union(*(labels_of(metric) for metric in used.metrics))
    assert [label for label in used.grouped if label not in known] == []


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_no_expression_rests_on_a_metric_that_is_always_zero(where: str, expression: str) -> None:
    assert [m for m in uses(expression).metrics if m in series() and series()[m].unused] == []


def test_quantiles_are_taken_of_buckets_and_rates_of_counters() -> None:
    for where, expression in expressions():
        if "histogram_quantile" in expression:
            assert "le" in uses(expression).grouped, where
        for metric in re.findall(r"(?:rate|increase)\(([a-z_]+)", expression):
            assert series()[metric].kind in ("counter", "histogram"), where


def test_mistakes_in_an_expression_would_be_found() -> None:
    used = uses('sum by (le,nope) (rate(a_total{x="b{}",y=~"c"}[5m])) > 2 and min_over_time(b[1h]) == 1')

    assert used == Uses(["a_total", "b"], [("a_total", "x"), ("a_total", "y")], ["le", "nope"])


# --- alerts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alert_says_what_is_wrong_and_what_to_do(rule: Json) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Tidelog[A-Z]\w+", rule["alert"])
    assert rule["labels"] in ({"severity": "warning"}, {"severity": "critical"})
    assert set(rule["annotations"]) == {"summary", "description"}
    assert parse_duration(rule.get("for", "0s")) >= 0


def test_alerts_cover_what_must_not_go_unnoticed() -> None:
    watched = {metric for rule in rules() for metric in uses(rule["expr"]).metrics}

    assert watched >= {
        "tidelog_ready",
        "scheduler_inflight_events",
        "scheduler_pod_scheduled_after_flush_total",
        "tidelog_log_commit_duration_seconds_bucket",
        "scheduler_pending_pods",
    }
    assert len({rule["alert"] for rule in rules()}) == len(rules())


# --- dashboard -----------------------------------------------------------------------------------------------------------


def test_panels_have_their_own_ids_and_places() -> None:
    everything = dashboard()["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in everything)
        for x, y in itertools.product(
            range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        )
    ]

    assert len({panel["id"] for panel in everything}) == len(everything)
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_panels_use_the_variables_that_are_declared() -> None:
    page = dashboard()
    declared = {variable["name"] for variable in page["templating"]["list"]}

    used = set(re.findall(r"\$\{?(\w+)", json.dumps(page))) - {"__rate_interval", "__all"}

    assert used == declared
    for panel in panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert legend <= set(uses(target["expr"]).grouped), panel["title"]


def test_dashboard_shows_attempts_latency_queues_hints_in_flight_log_and_preemption() -> None:
    shown = {metric for panel in panels() for t in panel["targets"] for metric in uses(t["expr"]).metrics}

    for part in (
        "schedule_attempts",
        "sli_duration",
        "pending_pods",
        "hint",
        "inflight",
        "log_commit",
        "preemption",
    ):
        assert any(part in metric for metric in shown), part


# --- unit and container --------------------------------------------------------------------------------------------------


def unit() -> dict[str, list[str]]:
    """Section.Key → its values; a key may stand there several times."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in (DEPLOY / "tidelog.service").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
            assert section in ("Unit", "Service", "Install")
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, line
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


def container() -> list[tuple[str, str]]:
    """(instruction, rest) of the Containerfile, continued lines joined."""
    text = (DEPLOY / "Containerfile").read_text()
    lines = re.sub(
        r"\\\n\s*", "", "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    ).splitlines()
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines if line]


def check_command(words: list[str]) -> None:
    """The words behind `tidelog` are a verb and options that it has."""
    (verb,) = [verb for verb in cli.VERBS if verb.name == words[0]]
    known = cli.parser_of(verb).format_help()
    for option in (word for word in words[1:] if word.startswith("-")):
        assert f"{option} " in known or f"{option}," in known, option


needs_run = pytest.mark.xfail(
    all(verb.name != "run" for verb in cli.VERBS), reason="the verb `run` is not there yet", strict=True
)


@needs_run
def test_unit_starts_a_verb_that_there_is() -> None:
    (command,) = unit()["Service.ExecStart"]
    words = [word for word in shlex.split(command) if not word.startswith("$TIDELOG")]

    assert Path(words[0]).name == "tidelog"
    check_command(words[1:])


@needs_run
def test_container_starts_a_verb_that_there_is() -> None:
    instructions = dict(container())

    assert json.loads(instructions["ENTRYPOINT"]) == ["tidelog"]
    check_command(json.loads(instructions["CMD"]))


def test_unit_may_do_nothing_that_a_scheduler_need_not() -> None:
    found = unit()

    assert found["Service.User"] == found["Service.Group"] == ["tidelog"]
    assert found["Service.StateDirectory"] == ["tidelog"]
    assert found["Service.CapabilityBoundingSet"] == [""]
    for key in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "MemoryDenyWriteExecute"):
        assert found[f"Service.{key}"] == ["yes"], key
    assert found["Service.ProtectSystem"] == ["strict"]
    assert "u tidelog " in (DEPLOY / "tidelog.sysusers").read_text()


def test_unit_does_not_restart_what_a_restart_cannot_help() -> None:
    codes = {int(code) for code in unit()["Service.RestartPreventExitStatus"][0].split()}

    documented = dict(re.findall(r"(\d+) ([a-z ]+)", cli.EXIT_CODES))
    assert {documented[str(code)] for code in codes} == {
        "wrong usage",
        "a replay differs",
        "the log is damaged",
    }


def test_container_is_built_from_every_folder_of_the_package() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {name.split(".")[1] for name in listed if "." in name}

    copied = [rest.split() for instruction, rest in container() if instruction == "COPY"]

    assert {rest[0] for rest in copied if len(rest) == 2 and rest[0] == rest[1]} == folders
    files = {name for rest in copied if rest[-1] == "./" for name in rest[:-1]}
    assert files >= {"pyproject.toml", "README.md", "LICENSE", "py.typed"}
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_container_does_not_run_as_root() -> None:
    (user,) = [rest for instruction, rest in container() if instruction == "USER"]

    assert user.isdigit()
    assert int(user) > 0
