"""The configuration file: what it means, what is refused with which path, what is told, and that it can be written back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidelog.api.errors import InvalidObjects
from tidelog.api.features import FeatureGates
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import (
    Loaded,
    SchedulerConfiguration,
    default_configuration,
    read_configuration,
    resolve_configuration,
    write_configuration,
)
from tidelog.configuration.profiles import EnabledPlugin
from tidelog.configuration.strict import TEXT_BYTES_MAX
from tidelog.framework.interface import Plugin
from tidelog.plugins.registry import Registry

HEADER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


class MyFilter(Plugin):
    """An out-of-tree plugin without arguments."""

    name = "MyFilter"

    def filter(self, state: Any, pod: Any, node: Any) -> None:
        return None


class MySort(Plugin):
    name = "MySort"

    def sort_key(self, pod: Any, timestamp: int) -> tuple[int, ...]:
        return (timestamp,)


class Generator(Plugin):
    name = "Generator"

    def generate(self, state: Any, group: Any, parents: Any) -> Any:
        return parents, None


class OtherGenerator(Generator):
    name = "OtherGenerator"


REGISTRY = Registry()
REGISTRY.register(Generator)
REGISTRY.register(OtherGenerator)
REGISTRY.register(MyFilter)
REGISTRY.register(MySort)


def load(**fields: Any) -> Loaded:
    return resolve_configuration(HEADER | fields, REGISTRY)


def profile(**fields: Any) -> dict[str, Any]:
    return {"profiles": [fields]}


def plugins(**points: Any) -> dict[str, Any]:
    return profile(plugins=points)


def config_of(name: str, **args: Any) -> dict[str, Any]:
    return profile(pluginConfig=[{"name": name, "args": args}])


def refused(**fields: Any) -> dict[str, str]:
    """Path → what is said there, for every error of a refused configuration."""
    with pytest.raises(InvalidObjects) as caught:
        load(**fields)
    return {error.path: str(error).removeprefix(f"{error.path}: ") for error in caught.value.errors}


# --- what is in force -----------------------------------------------------------------------------------------------------------


def test_default_profile_is_kube_schedulers() -> None:
    (only,) = default_configuration(REGISTRY).profiles

    assert only.scheduler_name == "default-scheduler"
    assert [entry.name for entry in only.points["filter"]] == [
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
    ]
    assert only.points["score"] == (
        EnabledPlugin("TaintToleration", 3),
        EnabledPlugin("NodeAffinity", 2),
        EnabledPlugin("NodeResourcesFit", 1),
        EnabledPlugin("VolumeBinding", 1),
        EnabledPlugin("PodTopologySpread", 2),
        EnabledPlugin("InterPodAffinity", 2),
        EnabledPlugin("DynamicResources", 2),
        EnabledPlugin("NodeResourcesBalancedAllocation", 1),
        EnabledPlugin("ImageLocality", 1),
    )
    assert only.points["queueSort"] == (EnabledPlugin("PrioritySort"),)
    assert only.points["bind"] == (EnabledPlugin("DefaultBinder"),)


def test_defaults_outside_profiles() -> None:
    found = default_configuration(REGISTRY)

    assert (found.pod_initial_backoff_seconds, found.pod_max_backoff_seconds) == (1, 10)
    assert (found.compat, found.upstream) == ("default", False)
    assert found.time_event_period == 30 * NANOS
    assert found.pod_max_in_unschedulable_pods_duration == 300 * NANOS
    assert found.desired_count_wait == 5 * NANOS
    assert found.partial_placement == "auto"
    assert found.fallback_only_if_rejected_by_spread is False
    assert found.guard_starting_pods is True
    assert found.feature_gates == FeatureGates()


def test_empty_list_of_profiles_is_one_default_profile() -> None:
    assert load(profiles=[]).configuration == default_configuration(REGISTRY)
    assert load(profiles=None).configuration == default_configuration(REGISTRY)


def test_own_section() -> None:
    section = {
        "timeEventPeriod": "1s",
        "podMaxInUnschedulablePodsDuration": "1h30m",
        "fallbackOnlyIfRejectedBySpread": True,
        "guardStartingPods": False,
        "desiredCountWait": "0s",
        "partialPlacement": "always",
        "featureGates": {"PodTopologySpreadFallbackMode": True},
    }

    found = load(tidelog=section).configuration

    assert found.time_event_period == NANOS
    assert found.pod_max_in_unschedulable_pods_duration == 5400 * NANOS
    assert found.fallback_only_if_rejected_by_spread is True
    assert found.guard_starting_pods is False
    assert found.desired_count_wait == 0
    assert found.partial_placement == "always"
    assert found.feature_gates == FeatureGates(pod_topology_spread_fallback_mode=True)


def test_upstream_mode_places_groups_partially_unless_told_otherwise() -> None:
    assert load(tidelog={"compat": "upstream"}).configuration.partial_placement == "always"
    told = {"compat": "upstream", "partialPlacement": "auto"}
    assert load(tidelog=told).configuration.partial_placement == "auto"


def test_gates_of_the_command_line_override_the_files() -> None:
    gates = {"SchedulerQueueingHints": True, "MinDomainsInPodTopologySpread": False}

    found = resolve_configuration(
        HEADER
        | {
            "tidelog": {
                "featureGates": {"SchedulerQueueingHints": False, "PodTopologySpreadFallbackMode": True}
            }
        },
        REGISTRY,
        gates=gates,
    )

    assert found.configuration.feature_gates == FeatureGates(
        pod_topology_spread_fallback_mode=True, min_domains_in_pod_topology_spread=False
    )


def test_arguments_carry_their_defaults() -> None:
    args = load(**config_of("InterPodAffinity", hardPodAffinityWeight=5)).configuration.profiles[0].args

    assert args["InterPodAffinity"] == {
        "hardPodAffinityWeight": 5,
        "ignorePreferredTermsOfExistingPods": False,
    }
    assert args["NodeResourcesFit"]["scoringStrategy"]["type"] == "LeastAllocated"
    assert args["NodeAffinity"] == {"addedAffinity": None}


def test_profiles_have_their_own_plugins_and_arguments() -> None:
    found = load(
        profiles=[
            {"schedulerName": "a", "plugins": {"multiPoint": {"enabled": [{"name": "MyFilter"}]}}},
            {
                "schedulerName": "b",
                "pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 9}}],
            },
        ]
    ).configuration

    a, b = found.profiles
    assert (found.profile("a"), found.profile("b"), found.profile("c")) == (a, b, None)
    assert a.points["filter"][-1].name == "MyFilter"
    assert b.points["filter"][-1].name == "DynamicResources"
    assert [p.args["InterPodAffinity"]["hardPodAffinityWeight"] for p in (a, b)] == [1, 9]


def test_another_queue_sort_replaces_the_default() -> None:
    queue_sort = {"enabled": [{"name": "MySort"}], "disabled": [{"name": "*"}]}

    assert load(**plugins(queueSort=queue_sort)).configuration.profiles[0].points["queueSort"] == (
        EnabledPlugin("MySort"),
    )


# --- what is refused, with its path -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "path", "said"),
    [
        ({"apiVersion": ""}, "apiVersion", "Required value"),
        (
            {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"},
            "apiVersion",
            'Unsupported value: "kubescheduler.config.k8s.io/v1beta3": supported values: "kubescheduler.config.k8s.io/v1"',
        ),
        ({"kind": "Pod"}, "kind", "Unsupported value"),
        ({"paralellism": 3}, "paralellism", 'Forbidden: unknown field, did you mean "parallelism"?'),
        ({"parallelism": 0}, "parallelism", "Invalid value: 0: must be greater than zero"),
        ({"parallelism": "four"}, "parallelism", 'Invalid value: "four": must be an integer'),
        ({"percentageOfNodesToScore": 101}, "percentageOfNodesToScore", "Invalid value: 101"),
        ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds", "Invalid value: 0"),
        ({"podInitialBackoffSeconds": 11}, "podMaxBackoffSeconds", "Invalid value: 10"),
        ({"extenders": [{"urlPrefix": "http://x"}]}, "extenders", "Forbidden: extenders are not supported"),
        ({"profiles": {}}, "profiles", "Invalid value: {}: must be a list"),
        (
            {"leaderElection": {"leaderElect": True, "resourceLock": "endpoints"}},
            "leaderElection.resourceLock",
            "Unsup",
        ),
        (
            {"tidelog": {"compat": "both"}},
            "tidelog.compat",
            'Unsupported value: "both": supported values: "default", "up',
        ),
        ({"tidelog": {"timeEventPeriod": "999ms"}}, "tidelog.timeEventPeriod", "Invalid value"),
        ({"tidelog": {"timeEventPeriod": "often"}}, "tidelog.timeEventPeriod", "Invalid value"),
        (
            {"tidelog": {"timeEventPeriod": 30}},
            "tidelog.timeEventPeriod",
            "Invalid value: 30: must be a string",
        ),
        (
            {"tidelog": {"podMaxInUnschedulablePodsDuration": "0s"}},
            "tidelog.podMaxInUnschedulablePodsDuration",
            'Invalid value: "0s": must be greater than zero',
        ),
        (
            {"tidelog": {"desiredCountWait": "-1s"}},
            "tidelog.desiredCountWait",
            'Invalid value: "-1s": must not be negative',
        ),
        (
            {"tidelog": {"featureGates": {"MinDomains": True}}},
            "tidelog.featureGates.MinDomains",
            "Forbidden: unknown field",
        ),
        (
            {"profiles": [{"percentageOfNodesToScore": -1}]},
            "profiles[0].percentageOfNodesToScore",
            "Invalid value: -1",
        ),
        (
            {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
            "profiles[1].schedulerName",
            'Duplicate value: "a"',
        ),
        ({"profiles": [{}, {"schedulerName": "a"}]}, "profiles[0].schedulerName", "Required value"),
    ],
)
def test_bad_field_is_refused_with_its_path(fields: dict[str, Any], path: str, said: str) -> None:
    found = refused(**fields)

    assert list(found) == [path]
    assert found[path].startswith(said)


POINTS = "profiles[0].plugins"


@pytest.mark.parametrize(
    ("points", "path", "said"),
    [
        (
            {"score": {"enabled": [{"name": "NodeAffinity"}, {"name": "ImageLocality", "weigth": 2}]}},
            f"{POINTS}.score.enabled[1].weigth",
            'Forbidden: unknown field, did you mean "weight"?',
        ),
        ({"scores": {}}, f"{POINTS}.scores", 'Forbidden: unknown field, did you mean "score"?'),
        (
            {"filter": {"enabled": [{"name": "NodeAfinity"}]}},
            f"{POINTS}.filter.enabled[0].name",
            'Not found: "NodeAfinity": no such plugin, did you mean "NodeAffinity"?',
        ),
        (
            {"filter": {"disabled": [{"name": "Nobody"}]}},
            f"{POINTS}.filter.disabled[0].name",
            'Not found: "Nobody": no such plugin',
        ),
        ({"filter": {"enabled": [{}]}}, f"{POINTS}.filter.enabled[0].name", "Required value"),
        (
            {"multiPoint": {"enabled": [{"name": "EBSLimits"}]}},
            f"{POINTS}.multiPoint.enabled[0].name",
            'Not found: "EBSLimits": the plugin was removed from Kubernetes',
        ),
        (
            {"filter": {"enabled": [{"name": "ImageLocality"}]}},
            f"{POINTS}.filter.enabled[0].name",
            'Invalid value: "ImageLocality": the plugin does not take part in filter',
        ),
        (
            {"filter": {"enabled": [{"name": "NodeName"}, {"name": "NodeName"}]}},
            f"{POINTS}.filter.enabled[1].name",
            'Duplicate value: "NodeName"',
        ),
        (
            {"score": {"enabled": [{"name": "ImageLocality", "weight": 0}]}},
            f"{POINTS}.score.enabled[0].weight",
            "Invalid value: 0: must be greater than zero; leave it out for 1, or disable the plugin",
        ),
        (
            {"multiPoint": {"enabled": [{"name": "ImageLocality", "weight": 0}]}},
            f"{POINTS}.multiPoint.enabled[0].weight",
            "Invalid value: 0",
        ),
        (
            {"filter": {"enabled": [{"name": "NodeName", "weight": -1}]}},
            f"{POINTS}.filter.enabled[0].weight",
            "Invalid value: -1",
        ),
        (
            {"score": {"enabled": [{"name": "ImageLocality", "weight": 1 << 31}]}},
            f"{POINTS}.score.enabled[0].weight",
            "Invalid value: 2147483648: must be between 1 and 2147483647",
        ),
        (
            {"queueSort": {"disabled": [{"name": "*"}]}},
            f"{POINTS}.queueSort",
            "Invalid value: []: exactly one",
        ),
        ({"queueSort": {"enabled": [{"name": "MySort"}]}}, f"{POINTS}.queueSort", "Invalid value: ["),
        ({"bind": {"disabled": [{"name": "DefaultBinder"}]}}, f"{POINTS}.bind", "Required value"),
    ],
)
def test_bad_plugin_set_is_refused_with_its_path(points: dict[str, Any], path: str, said: str) -> None:
    found = refused(**plugins(**points))

    assert list(found) == [path]
    assert found[path].startswith(said)


def test_generators_compose_except_in_upstream_where_one_is_allowed() -> None:
    two = plugins(multiPoint={"enabled": [{"name": "Generator"}, {"name": "OtherGenerator"}]})

    assert load(**two).configuration.profiles[0].points["placementGenerate"]
    assert refused(**two, tidelog={"compat": "upstream"})[f"{POINTS}.placementGenerate"].startswith(
        "Too many"
    )


ARGS = "profiles[0].pluginConfig[0]"
SHAPE = f"{ARGS}.args.scoringStrategy.requestedToCapacityRatio.shape"


def ratio(*points: tuple[int, int]) -> dict[str, Any]:
    shape = [{"utilization": utilization, "score": score} for utilization, score in points]
    return {
        "scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}}
    }


@pytest.mark.parametrize(
    ("name", "args", "path", "said"),
    [
        ("Nobody", {}, f"{ARGS}.name", 'Not found: "Nobody"'),
        ("", {}, f"{ARGS}.name", "Required value"),
        ("CinderLimits", {}, f"{ARGS}.name", "Not found"),
        ("MyFilter", {"size": 1}, f"{ARGS}.args", "Forbidden: MyFilter takes no arguments"),
        ("NodeAffinity", {"kind": "NodeAffinity"}, f"{ARGS}.args.kind", "Unsupported value"),
        ("NodeAffinity", {"apiVersion": "v2"}, f"{ARGS}.args.apiVersion", "Unsupported value"),
        (
            "InterPodAffinity",
            {"hardPodAffinityWeigth": 1},
            f"{ARGS}.args.hardPodAffinityWeigth",
            'Forbidden: unknown field, did you mean "hardPodAffinityWeight"?',
        ),
        (
            "InterPodAffinity",
            {"hardPodAffinityWeight": "1"},
            f"{ARGS}.args.hardPodAffinityWeight",
            "Invalid value",
        ),
        (
            "InterPodAffinity",
            {"hardPodAffinityWeight": 101},
            f"{ARGS}.args.hardPodAffinityWeight",
            "Invalid value: 101",
        ),
        (
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 101},
            f"{ARGS}.args.minCandidateNodesPercentage",
            "Invalid value: 101: must be between 0 and 100",
        ),
        (
            "DefaultPreemption",
            {"minCandidateNodesAbsolute": -1},
            f"{ARGS}.args.minCandidateNodesAbsolute",
            "Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "DefaultPreemption",
            {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
            f"{ARGS}.args.minCandidateNodesPercentage",
            "Invalid value: 0: must not be zero together with minCandidateNodesAbsolute",
        ),
        ("NodeResourcesFit", ratio((0, 0), (50, 5), (50, 6)), f"{SHAPE}[2].utilization", "Invalid value: 50"),
        ("NodeResourcesFit", ratio((0, 11)), f"{SHAPE}[0].score", "Invalid value: 11"),
        ("NodeResourcesFit", ratio(), SHAPE, "Required value"),
        (
            "NodeResourcesFit",
            {"scoringStrategy": {"type": "Best"}},
            f"{ARGS}.args.scoringStrategy.type",
            "Unsup",
        ),
        ("PodTopologySpread", {"defaultingType": "Some"}, f"{ARGS}.args.defaultingType", "Unsupported value"),
        (
            "PodTopologySpread",
            {"nodeProvisioningTimeout": "5m"},
            f"{ARGS}.args.nodeProvisioningTimeout",
            "Forbidden",
        ),
    ],
)
def test_bad_arguments_are_refused_with_their_path(
    name: str, args: dict[str, Any], path: str, said: str
) -> None:
    found = refused(**config_of(name, **args))

    assert list(found) == [path]
    assert found[path].startswith(said)


def test_arguments_given_twice_are_refused() -> None:
    twice = [{"name": "NodeAffinity"}, {"name": "NodeAffinity"}]

    assert refused(**profile(pluginConfig=twice)) == {
        "profiles[0].pluginConfig[1].name": 'Duplicate value: "NodeAffinity"'
    }


def test_profiles_must_sort_the_queue_alike() -> None:
    queue_sort = {"enabled": [{"name": "MySort"}], "disabled": [{"name": "*"}]}

    found = refused(
        profiles=[{"schedulerName": "a"}, {"schedulerName": "b", "plugins": {"queueSort": queue_sort}}]
    )

    assert list(found) == ["profiles[1].plugins.queueSort"]


def test_every_mistake_is_reported_at_once() -> None:
    found = refused(
        podMaxBackoffSeconds=0,
        tidelog={"compat": 1, "desiredCountWait": "soon"},
        profiles=[
            {"plugins": {"score": {"enabled": [{"name": "Nobody"}, {"name": "NodeAffinity", "weight": 0}]}}},
            {"schedulerName": "b", "pluginConfig": [{"name": "MyFilter", "args": {"a": 1}}]},
        ],
    )

    assert sorted(found) == [
        "podMaxBackoffSeconds",
        "profiles[0].plugins.score.enabled[0].name",
        "profiles[0].plugins.score.enabled[1].weight",
        "profiles[0].schedulerName",
        "profiles[1].pluginConfig[0].args",
        "tidelog.compat",
        "tidelog.desiredCountWait",
    ]


# --- what is accepted, and told ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        ({"parallelism": 16}, "parallelism has no effect"),
        ({"percentageOfNodesToScore": 0}, "percentageOfNodesToScore has no effect: every node is considered"),
        ({"leaderElection": {"leaderElect": True}}, "leaderElection has no effect"),
        ({"clientConnection": {"qps": 50, "burst": 100}}, "clientConnection has no effect"),
        ({"enableProfiling": True}, "enableProfiling has no effect"),
        (profile(percentageOfNodesToScore=5), "profiles[0].percentageOfNodesToScore has no effect"),
        (
            plugins(multiPoint={"enabled": [{"name": "NodeDeclaredFeatures"}]}),
            "profiles[0].plugins.multiPoint.enabled[0].name: NodeDeclaredFeatures is left out: nodes' declared",
        ),
        (
            config_of("NodeDeclaredFeatures", any="10s"),
            "profiles[0].pluginConfig[0].name: NodeDeclaredFeatures is",
        ),
        (
            plugins(podGroupPostFilter={"enabled": [{"name": "DefaultPreemption"}]}),
            "profiles[0].plugins.podGroupPostFilter.enabled[0].name: DefaultPreemption is left out: groups do not preempt",
        ),
        (
            profile(
                plugins={"multiPoint": {"disabled": [{"name": "InterPodAffinity"}]}},
                pluginConfig=[{"name": "InterPodAffinity"}],
            ),
            "profiles[0].pluginConfig[0] has no effect: InterPodAffinity is not enabled in this profile",
        ),
    ],
)
def test_what_has_no_effect_is_named_in_a_warning(fields: dict[str, Any], warning: str) -> None:
    (found,) = load(**fields).warnings

    assert found.startswith(warning)


def test_ordinary_file_warns_of_nothing() -> None:
    assert load(podMaxBackoffSeconds=20, extenders=None).warnings == ()


def test_plugins_we_do_not_have_can_be_disabled_quietly() -> None:
    disabled = {"disabled": [{"name": "VolumeBinding"}, {"name": "GCEPDLimits"}]}

    assert load(**plugins(multiPoint=disabled)).warnings == ()


def test_file_that_kube_scheduler_wrote_gives_the_default_profile() -> None:
    """`kube-scheduler --write-config-to`: everything spelled out, nulls, and weight 0 where weights mean nothing."""
    text = (Path(__file__).parent / "written-by-kube-scheduler.yaml").read_text()

    loaded = read_configuration(text, REGISTRY)

    # It is of a version that scored fuller storage better; since StorageCapacityScoring is on by default, emptier is.
    args = loaded.configuration.profiles[0].args["VolumeBinding"]
    args["shape"] = default_configuration(REGISTRY).profiles[0].args["VolumeBinding"]["shape"]
    assert loaded.configuration == default_configuration(REGISTRY)
    left_out = [warning for warning in loaded.warnings if "left out" in warning]
    assert any("NodeDeclaredFeatures" in warning for warning in left_out)


# --- text -------------------------------------------------------------------------------------------------------------------------


BOMB = "\n".join(
    [f"a0: &a0 [{'x, ' * 99}x]", *(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 19}*a{i - 1}]" for i in range(1, 8))]
)
"""A few hundred bytes that name a hundred thousand million values."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "line 2, column 1: Invalid value"),
        ("a: 1\n---\nb: 2", "line 2: Invalid value: must be one YAML or JSON document"),
        ("", "document: Invalid value: must be an object"),
        ("- a", 'document: Invalid value: ["a"]: must be an object'),
        (b"\x80", 'line 1: Invalid value: "80": must be UTF-8'),
        ("a: !!python/object:os.system {}", "line 1, column 4 (a): Invalid value: tag"),
        ("profiles: &a [*a]", 'line 1, column 15 (profiles[0]): Invalid value: "a": alias refers to itself'),
        ("[" * 5000, "line 1, column 101"),
        ("[1]: x", "line 1, column 1: Invalid value: a key must be text"),
        (BOMB, "line 4, column"),
        ("x" * (TEXT_BYTES_MAX + 1), f"text: Too long: may not be more than {TEXT_BYTES_MAX} bytes"),
    ],
)
def test_text_that_is_no_document_is_refused_with_its_place(text: str | bytes, said: str) -> None:
    with pytest.raises(InvalidObjects) as caught:
        read_configuration(text, REGISTRY, source="scheduler.yaml")

    assert str(caught.value).startswith(f"scheduler.yaml is invalid: {said}")


def test_field_that_is_set_twice_is_refused() -> None:
    text = msgspec.yaml.encode(HEADER).decode() + "tidelog:\n  compat: default\n  compat: upstream\n"

    with pytest.raises(InvalidObjects) as caught:
        read_configuration(text, REGISTRY)

    (error,) = caught.value.errors
    assert (error.path, error.value, error.rule) == (
        "line 5, column 3 (tidelog)",
        "compat",
        "key is there twice",
    )


def test_json_is_read_too() -> None:
    assert read_configuration(msgspec.json.encode(HEADER), REGISTRY).configuration == default_configuration(
        REGISTRY
    )


# --- writing, and the log -----------------------------------------------------------------------------------------------------------


FULL: list[dict[str, Any]] = [
    {},
    plugins(score={"disabled": [{"name": "*"}], "enabled": [{"name": "ImageLocality", "weight": 7}]}),
    plugins(multiPoint={"enabled": [{"name": "MyFilter"}], "disabled": [{"name": "NodePorts"}]}),
    {"podMaxBackoffSeconds": 60, "tidelog": {"compat": "upstream", "timeEventPeriod": "1m30s"}},
    config_of("NodeResourcesFit", **ratio((0, 0), (100, 10))),
    config_of(
        "NodeAffinity",
        addedAffinity={
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }
        },
    ),
    {
        "profiles": [
            {"schedulerName": "a"},
            {"schedulerName": "b", "plugins": {"filter": {"disabled": [{"name": "*"}]}}},
        ]
    },
]


@pytest.mark.parametrize("fields", FULL)
def test_written_file_reads_as_the_same_configuration(fields: dict[str, Any]) -> None:
    configuration = load(**fields).configuration

    again = read_configuration(write_configuration(configuration), REGISTRY)

    assert again == Loaded(configuration, ())


@pytest.mark.parametrize("fields", FULL)
def test_configuration_survives_the_log(fields: dict[str, Any]) -> None:
    configuration = load(**fields).configuration
    encoded = msgspec.msgpack.encode(configuration)

    decoded = msgspec.msgpack.decode(encoded, type=SchedulerConfiguration)

    assert decoded == configuration
    assert msgspec.msgpack.encode(decoded) == encoded
