"""The builders write what a user would write in a manifest."""

from __future__ import annotations

import msgspec
import pytest

from tidelog.api import builders as build
from tidelog.api.objects import Pod


def wire(obj: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(obj))


def test_pod_is_written_in_one_line() -> None:
    pod = build.pod("web-1").label(app="web").request(cpu="500m", memory="1Gi").spread("zone", max_skew=2)

    assert wire(pod.build()) == {
        "metadata": {"name": "web-1", "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
            "topologySpreadConstraints": [
                {
                    "maxSkew": 2,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ],
        },
        "status": {},
    }


def test_builder_can_be_kept_and_varied() -> None:
    base = build.pod("a").request(cpu=1)

    other = base.named("b").request({"nvidia.com/gpu": 2})

    assert base.build().spec.containers[0].resources.requests == {"cpu": 1}
    assert other.build().metadata.name == "b"
    assert other.build().spec.containers[0].resources.requests == {"cpu": 1, "nvidia.com/gpu": 2}


def spec(pod: build.PodBuilder) -> object:
    written = wire(pod.build())
    assert isinstance(written, dict)
    del written["spec"]["containers"]
    return written["spec"]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEB = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}


@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        (build.pod("p").on("n1"), {"nodeName": "n1"}),
        (build.pod("p").priority(5).never_preempts(), {"priority": 5, "preemptionPolicy": "Never"}),
        (
            build.pod("p").priority_class("high").guarded_below(9),
            {"priorityClassName": "high", "allowDisruptionByPriorityGreaterThanOrEqual": 9},
        ),
        (build.pod("p").gate("a", "b"), {"schedulingGates": [{"name": "a"}, {"name": "b"}]}),
        (build.pod("p").group("g"), {"schedulingGroup": {"podGroupName": "g"}}),
        (
            build.pod("p").workload("w", "workers", "1"),
            {"workloadRef": {"name": "w", "podGroup": "workers", "podGroupReplicaKey": "1"}},
        ),
        (
            build.pod("p").tolerate("gpu", "yes", "NoExecute", 30).tolerate(),
            {
                "tolerations": [
                    {
                        "key": "gpu",
                        "operator": "Equal",
                        "value": "yes",
                        "effect": "NoExecute",
                        "tolerationSeconds": 30,
                    },
                    {"operator": "Exists"},
                ]
            },
        ),
        (
            build.pod("p").node_affinity("zone in (a,b),cores>4", "metadata.name=n1"),
            {
                "affinity": {
                    "nodeAffinity": {
                        REQUIRED: {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "zone", "operator": "In", "values": ["a", "b"]},
                                        {"key": "cores", "operator": "Gt", "values": ["4"]},
                                    ]
                                },
                                {
                                    "matchFields": [
                                        {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                                    ]
                                },
                            ]
                        }
                    }
                }
            },
        ),
        (
            build.pod("p").pod_affinity("zone", "app=web").prefer_pod_anti_affinity(7, "zone", "app=web"),
            {
                "affinity": {
                    "podAffinity": {REQUIRED: [WEB]},
                    "podAntiAffinity": {PREFERRED: [{"weight": 7, "podAffinityTerm": WEB}]},
                }
            },
        ),
        (
            build.pod("p")
            .spread("zone", None, soft=True)
            .spread("rack", "a=b", fallback=("PreemptionFailed",)),
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
                    {
                        "maxSkew": 1,
                        "topologyKey": "rack",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"a": "b"}},
                        "fallbackCriteria": ["PreemptionFailed"],
                    },
                ]
            },
        ),
    ],
    ids=lambda value: None if isinstance(value, build.PodBuilder) else ",".join(value),
)
def test_each_word_writes_its_field(builder: build.PodBuilder, expected: object) -> None:
    assert spec(builder) == expected


def test_condition_replaces_the_one_of_its_type() -> None:
    pod = build.pod("p").condition("Ready", "False").condition("Ready", "True", at=1_500_000_000)

    conditions = pod.build().status.conditions

    assert [(c.type, c.status, c.last_transition_time) for c in conditions] == [
        ("Ready", "True", "1970-01-01T00:00:01.5Z")
    ]


def test_node_names_itself_in_its_hostname_label() -> None:
    node = build.node("n1").capacity(cpu=16).allocatable(cpu="15500m").taint("gpu", "a100").named("n2")

    built = node.build()

    assert built.metadata.labels == {build.HOSTNAME: "n2"}
    assert built.status.capacity == {"cpu": 16, "memory": "32Gi", "pods": "110"}
    assert built.status.allocatable == {"cpu": "15500m", "memory": "32Gi", "pods": "110"}
    assert wire(built.spec) == {"taints": [{"key": "gpu", "value": "a100", "effect": "NoSchedule"}]}


def test_everything_built_decodes_to_itself() -> None:
    pod = (
        build.pod("p")
        .owner("ReplicaSet", "web")
        .init_container(requests={"cpu": 1}, sidecar=True)
        .container(requests={"memory": "1Gi"})
        .overhead(cpu="10m")
        .port(80)
        .nominated("n1")
        .terminating()
        .build()
    )

    assert msgspec.json.decode(msgspec.json.encode(pod), type=Pod) == pod
