"""The builders write what a user would write in a manifest."""

from __future__ import annotations

import msgspec
import pytest

from tidelog.api.objects import Pod
from tidelog.testing import builders as build


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


@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        (build.pod("p").host_network().grace(5), {"hostNetwork": True, "terminationGracePeriodSeconds": 5}),
        (build.pod("p").scheduler("mine"), {"schedulerName": "mine"}),
        (build.pod("p").node_selector(disk="ssd"), {"nodeSelector": {"disk": "ssd"}}),
        (
            build.pod("p").prefer_node(3, "zone=a"),
            {
                "affinity": {
                    "nodeAffinity": {
                        PREFERRED: [
                            {
                                "weight": 3,
                                "preference": {
                                    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]
                                },
                            }
                        ]
                    }
                }
            },
        ),
        (
            build.pod("p")
            .pod_anti_affinity("zone", {"app": "web"}, namespace_selector="team=a")
            .prefer_pod_affinity(2, "zone", "app=web"),
            {
                "affinity": {
                    "podAffinity": {PREFERRED: [{"weight": 2, "podAffinityTerm": WEB}]},
                    "podAntiAffinity": {
                        REQUIRED: [{**WEB, "namespaceSelector": {"matchLabels": {"team": "a"}}}]
                    },
                }
            },
        ),
        (
            build.pod("p").claim("gpu", claim="c").claim("net", template="t").pvc("data"),
            {
                "resourceClaims": [
                    {"name": "gpu", "resourceClaimName": "c"},
                    {"name": "net", "resourceClaimTemplateName": "t"},
                ],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        ),
    ],
)
def test_further_words_write_their_fields(builder: build.PodBuilder, expected: object) -> None:
    assert spec(builder) == expected


def test_what_has_become_of_a_pod_is_written_in_its_status() -> None:
    pod = (
        build.pod("p").namespace("x").uid("u").image("i").phase("Running").started(0).nominated("n1").build()
    )

    assert wire(pod.status) == {
        "phase": "Running",
        "nominatedNodeName": "n1",
        "startTime": "1970-01-01T00:00:00Z",
    }
    assert (pod.metadata.namespace, pod.metadata.uid, pod.spec.containers[0].image) == ("x", "u", "i")


def test_owners_are_built_in_one_line() -> None:
    assert wire(build.service("s", {"a": "b"}).spec) == {"selector": {"a": "b"}}
    assert wire(build.replication_controller("r", {"a": "b"}).spec) == {"selector": {"a": "b"}}
    assert wire(build.replica_set("r", "a=b").spec) == {"selector": {"matchLabels": {"a": "b"}}}
    assert wire(build.stateful_set("s", None).spec) == {}
    assert build.requirement("a", "In", "b").values == ("b",)


def test_cordoned_node_has_field_and_taint_and_images_add_up() -> None:
    node = build.node("n").cordon().image("a", 5).image("b", 6).condition("Ready").build()

    assert wire(node.spec) == {
        "unschedulable": True,
        "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}],
    }
    assert [image.size_bytes for image in node.status.images] == [5, 6]
    assert [condition.type for condition in node.status.conditions] == ["Ready"]


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
