"""Comparing an answer with the one that a real kube-apiserver gave, field by field.

What cannot be equal is mapped: a uid stands for a uid, a time for a time, a revision for a revision, also within messages. What differs on purpose is
in `DIFFERENCES`, each with its reason; everything else must be the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
NUMBER = re.compile(r"\b\d{2,}\b")
ELIDED = "…"

NO_DEFAULTS = (
    "what people put is what they get: defaults that only kubelets and services read are not made up"
)
NO_MANAGED_FIELDS = "nobody's fields are managed"
NO_NULLS = "null and absent are the same"
ZONES = "labels of a pod's node are copied at its binding; the recording was made later in the pod's life"


class Difference(NamedTuple):
    """A place in which answers differ, and why."""

    place: str
    """A regular expression for `<flow>: <what> <path>`."""
    reason: str


DIFFERENCES = (
    Difference(
        r"kube-scheduler: missing metadata\.annotations$",
        "the recorded objects were made by kubectl, which left a note",
    ),
    Difference(
        r"kube-scheduler: missing (metadata\.finalizers|spec\.disruptionMode)$|kube-scheduler: header warning",
        NO_DEFAULTS,
    ),
    Difference(r"kube-scheduler: value metadata\.generation", "a deletion is no change of what is wanted"),
    Difference(r".*: missing (.*\.)?metadata\.managedFields", NO_MANAGED_FIELDS),
    Difference(
        r".*: missing (.*\.)?spec\.(containers\[\d+\]\.(terminationMessagePath|terminationMessagePolicy|imagePullPolicy)|restartPolicy|"
        r"terminationGracePeriodSeconds|dnsPolicy|securityContext|tolerations|enableServiceLinks|serviceAccount|serviceAccountName)",
        NO_DEFAULTS,
    ),
    Difference(r".*: missing (.*\.)?status\.(qosClass|daemonEndpoints|nodeInfo)", NO_DEFAULTS),
    Difference(r".*: missing (.*\.)?spec$", NO_DEFAULTS),
    Difference(
        r".*: missing (.*\.)?conditions\[\d+\]\.(lastProbeTime|lastHeartbeatTime|lastTransitionTime)",
        NO_NULLS,
    ),
    Difference(r"events: missing deprecated(Source|FirstTimestamp|LastTimestamp)", NO_NULLS),
    Difference(
        r"podgroup: missing (status|spec\.disruptionMode|spec\.podGroupTemplates\[0\]\.schedulingConstraints|metadata\.finalizers)$",
        NO_DEFAULTS,
    ),
    Difference(r"podgroup: more metadata\.generation", "every object's generation is counted"),
    Difference(r"lease: more metadata\.generation", "every object's generation is counted"),
    Difference(
        r"(podgroup: desiredCount|podgroup: preferred|podgroup: podGroups|podgroup: workloadRef|dropped-fields): .*",
        "the KEPs' own fields are known here, and so neither told nor dropped",
    ),
    Difference(r"podgroup: header warning", "nothing here says that a version is deprecated"),
    Difference(
        r"podgroup: (missing resources\[\d+\]\.storageVersionHash|more resources\[\d+\]\.shortNames)",
        "nothing is stored under a hash; kinds have short names",
    ),
    Difference(r"podgroup: versions", "other versions of the group are served"),
    Difference(
        r"gone: more .*message|gone: value metadata\.continue", "a continue token is its server's own"
    ),
    Difference(
        r"eviction: (missing|value) status\.observedGeneration|.*: more (.*\.)?status\.(observedGeneration|currentHealthy|desiredHealthy|expectedPods)",
        NO_DEFAULTS,
    ),
    Difference(r"eviction: missing status\.conditions\[\d+\]\.(observedGeneration|message)", NO_NULLS),
    Difference(r"eviction: value metadata\.generation", "a deletion is no change of what is wanted"),
    Difference(
        r"list: (more|missing|value) items\[\d+\]\.(status|spec|metadata)\..*",
        "the recorded objects had a life that is not told again",
    ),
    Difference(
        r"list: value (metadata\.continue|items\[\d+\]\.metadata\.generation)",
        "a continue token is its server's own",
    ),
    Difference(
        r"list: more (items\[\d+\]\.)?metadata\.generation|.*: more metadata\.generation",
        "every object's generation is counted",
    ),
    Difference(
        r"(bind|status-patch|nominate): (missing|more) metadata\.labels\.topology\.kubernetes\.io/zone", ZONES
    ),
    Difference(r"errors: .*403.*", "there are no roles: who has the token may do everything"),
    Difference(r"bind: (missing|more) status\..*", NO_DEFAULTS),
)


def differences(recorded: Any, actual: Any, path: str = "") -> Iterator[str]:
    """What is not the same, as `missing spec.x`, `more spec.x`, `value spec.x: …`."""
    if isinstance(recorded, dict) and isinstance(actual, dict):
        for key, part in recorded.items():
            where = f"{path}.{key}" if path else key
            if key in actual:
                yield from differences(part, actual[key], where)
            elif part is not None:
                yield f"missing {where}"
        for key in actual:
            if key not in recorded:
                yield f"more {path}.{key}" if path else f"more {key}"
    elif isinstance(recorded, list) and isinstance(actual, list):
        if len(recorded) != len(actual):
            yield f"value {path}: {len(actual)} items in place of {len(recorded)}"
        for place, (one, other) in enumerate(zip(recorded, actual, strict=False)):
            yield from differences(one, other, f"{path}[{place}]")
    elif recorded != ELIDED and mapped(recorded) != mapped(actual):
        yield f"value {path}: {actual!r} in place of {recorded!r}"


def mapped(value: Any) -> Any:
    """The value with everything taken out that is another one on every server."""
    if not isinstance(value, str):
        return value
    return NUMBER.sub("<n>", TIME.sub("<time>", UID.sub("<uid>", value)))


def unexplained(flow: str, found: Iterator[str]) -> list[str]:
    """Those without a reason."""
    lines = [f"{flow}: {line}" for line in found]
    return [line for line in lines if not any(re.match(one.place, line) for one in DIFFERENCES)]
