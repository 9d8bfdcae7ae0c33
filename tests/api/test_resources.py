"""What a pod requests, and what it counts for where others are scored."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tidelog.api.objects import ContainerStatus, Pod, PodStatus, ResourceRequirements
from tidelog.api.resources import (
    counted,
    effective_requests,
    is_extended,
    is_scalar,
    non_zero_requests,
    occupied_requests,
    pod_requests,
    score_requests,
)
from tidelog.testing.builders import PodBuilder, pod

MI = 1024 * 1024
DEFAULT_MEMORY = 200 * MI


def cpu(builder: PodBuilder) -> int:
    return pod_requests(builder.build()).get("cpu", 0)


def non_zero(builder: PodBuilder) -> tuple[int, int]:
    built = builder.build()
    return non_zero_requests(built, occupied_requests(built))


def resizing(spec: str, allocated: str | None, actual: str | None, reason: str = "", others: int = 0) -> Pod:
    """A bound pod of which the container `app` is being resized, beside containers without a status."""
    builder = pod("p").on("n")
    built = replace(builder.build(), spec=replace(builder.build().spec, containers=()))
    app = pod("x").container("app", {"cpu": spec}).build().spec.containers[-1]
    beside = pod("x").container("beside", {"cpu": "50m"}).build().spec.containers[-1]
    status = ContainerStatus(
        name="app",
        allocated_resources={"cpu": allocated} if allocated else {},
        resources=ResourceRequirements(requests={"cpu": actual}) if actual else None,
    )
    pending = (
        pod("x").condition("PodResizePending", reason=reason).build().status.conditions if reason else ()
    )
    return replace(
        built,
        spec=replace(built.spec, containers=(app,) + (beside,) * others),
        status=PodStatus(container_statuses=(status,), conditions=pending),
    )


def test_containers_and_sidecars_add_up() -> None:
    builder = (
        pod("p")
        .request(cpu="100m")
        .container("b", {"cpu": "200m"})
        .init_container("s", {"cpu": "50m"}, sidecar=True)
    )

    assert cpu(builder) == 350


def test_an_init_container_counts_if_its_step_needs_more() -> None:
    assert cpu(pod("p").request(cpu="100m").init_container("i", {"cpu": "300m"})) == 300
    assert cpu(pod("p").request(cpu="400m").init_container("i", {"cpu": "300m"})) == 400


def test_a_sidecar_counts_into_the_steps_after_it_and_not_into_those_before() -> None:
    before = pod("p").init_container("i", {"cpu": "300m"}).init_container("s", {"cpu": "50m"}, sidecar=True)
    after = pod("p").init_container("s", {"cpu": "50m"}, sidecar=True).init_container("i", {"cpu": "300m"})

    assert cpu(before) == 300
    assert cpu(after) == 350


def test_pod_level_requests_replace_and_overhead_is_added_last() -> None:
    builder = (
        pod("p")
        .request(cpu="100m", memory="1Mi")
        .pod_level({"cpu": "500m"})
        .overhead(cpu="10m", memory="1Mi")
    )

    assert pod_requests(builder.build()) == {"cpu": 510, "memory": 2 * MI}


def test_pod_level_requests_for_other_resources_are_ignored() -> None:
    assert pod_requests(pod("p").pod_level({"example.com/gpu": "1"}).build()) == {}


def test_amounts_are_rounded_up() -> None:
    built = pod("p").request(cpu="1.5m", memory="0.1").build()

    assert pod_requests(built) == {"cpu": 2, "memory": 1}


def test_limits_are_not_looked_at() -> None:
    assert pod_requests(pod("p").limit(cpu="1").build()) == {}


@pytest.mark.parametrize(
    ("allocated", "actual", "reason", "expected"),
    [
        ("500m", "1500m", "", 1500),
        ("1500m", "200m", "", 1500),
        ("200m", "200m", "", 1000),
        ("200m", "200m", "Deferred", 1000),
        ("500m", "200m", "Infeasible", 500),
        ("500m", None, "Infeasible", 500),
        (None, "300m", "Infeasible", 300),
        (None, None, "Infeasible", 0),
        (None, None, "", 1000),
    ],
)
def test_a_resize_counts_the_largest_of_three(
    allocated: str | None, actual: str | None, reason: str, expected: int
) -> None:
    built = resizing("1", allocated, actual, reason)

    assert occupied_requests(built).get("cpu", 0) == expected


def test_a_resize_counts_the_largest_sum_and_not_the_sum_of_the_largest() -> None:
    one = resizing("1", "2", "2")
    two = resizing("3", "1", "1")
    both = replace(
        one,
        spec=replace(
            one.spec, containers=(one.spec.containers[0], replace(two.spec.containers[0], name="other"))
        ),
        status=PodStatus(
            container_statuses=(
                one.status.container_statuses[0],
                replace(two.status.container_statuses[0], name="other"),
            )
        ),
    )

    assert occupied_requests(both)["cpu"] == 4000


def test_a_resize_leaves_containers_without_a_status_at_their_spec() -> None:
    assert occupied_requests(resizing("1", "2", "2", others=2))["cpu"] == 2100


def test_a_pod_that_looks_for_a_node_counts_with_its_spec() -> None:
    assert pod_requests(resizing("1", "2", "2"))["cpu"] == 1000


# --- defaults for scores --------------------------------------------------------------------------------------------------


def test_each_container_that_does_not_mention_a_resource_gets_the_default() -> None:
    builder = pod("p").request(cpu="300m").container("b", {"memory": "1Mi"}).container("c")

    assert score_requests(builder.build()) == {"cpu": 500, "memory": 2 * DEFAULT_MEMORY + MI}
    assert non_zero(builder) == (500, 2 * DEFAULT_MEMORY + MI)


def test_an_explicit_zero_stays() -> None:
    builder = pod("p").request(cpu="0", memory="0")

    assert score_requests(builder.build()) == {"cpu": 0, "memory": 0}
    assert non_zero(builder) == (0, 0)


def test_init_containers_get_the_default_too() -> None:
    assert non_zero(pod("p").request(cpu="10m", memory="1Mi").init_container("i")) == (100, DEFAULT_MEMORY)


def test_the_incoming_pods_score_ignores_pod_level_requests() -> None:
    builder = pod("p").request(cpu="300m").pod_level({"cpu": "2", "memory": "1Gi"}).overhead(cpu="10m")

    assert score_requests(builder.build()) == {"cpu": 310, "memory": DEFAULT_MEMORY}


def test_on_a_node_pod_level_requests_count_and_leave_the_default_to_what_nobody_mentions() -> None:
    memory_only = pod("p").container("b", {"memory": "1Mi"}).pod_level({"memory": "5Mi"})
    cpu_somewhere = pod("p").container("b", {"cpu": "30m"}).pod_level({"memory": "5Mi"})

    assert non_zero(memory_only) == (200, 5 * MI)
    assert non_zero(cpu_somewhere) == (30, 5 * MI)


def test_a_resize_counts_on_the_node_with_defaults() -> None:
    built = resizing("1", "2", "2")

    assert non_zero_requests(built, occupied_requests(built)) == (2000, DEFAULT_MEMORY)


@pytest.mark.parametrize(
    "built",
    [
        pod("p").build(),
        pod("p").request({"storage": "1Gi"}, cpu="1").init_container("i").overhead(cpu="10m").build(),
        pod("p").pod_level({"memory": "5Mi"}).request(cpu="1").build(),
        resizing("1", "2", "500m"),
    ],
)
def test_all_at_once_is_the_same_as_one_by_one(built: Pod) -> None:
    occupied = counted(occupied_requests(built))

    assert effective_requests(built) == (
        counted(pod_requests(built)),
        counted(score_requests(built)),
        occupied,
        *non_zero_requests(built, occupied),
    )


# --- names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "extended", "scalar"),
    [
        ("cpu", False, False),
        ("ephemeral-storage", False, False),
        ("hugepages-2Mi", False, True),
        ("attachable-volumes-aws-ebs", False, True),
        ("example.com/gpu", True, True),
        ("kubernetes.io/thing", False, True),
        ("requests.example.com/gpu", False, False),
        ("storage", False, False),
    ],
)
def test_kinds_of_resources(name: str, extended: bool, scalar: bool) -> None:
    assert (is_extended(name), is_scalar(name)) == (extended, scalar)


def test_names_that_do_not_count_are_left_out() -> None:
    requests = {"cpu": 1, "storage": 2, "requests.example.com/gpu": 3, "example.com/gpu": 4}

    assert counted(requests) == {"cpu": 1, "example.com/gpu": 4}
