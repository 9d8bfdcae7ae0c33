"""What /metrics/resources says of a pod is what the scheduler counts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from tidelog.api.objects import Container, Pod, ResourceRequirements
from tidelog.daemon.metrics.pod_resources import PODS_IN_A_PIECE, pod_limits, pod_resource_lines, unit_of
from tidelog.testing.builders import pod


def lines(*pods: Pod) -> str:
    return "".join(pod_resource_lines(pods))


def amounts(*pods: Pod) -> dict[tuple[str, str], float]:
    """(metric, resource) → value, for one pod."""
    return {
        (s.name, s.labels["resource"]): s.value
        for family in text_string_to_metric_families(lines(*pods))
        for s in family.samples
    }


def with_phase(of: Pod, phase: str) -> Pod:
    return replace(of, status=replace(of.status, phase=phase))


def test_request_and_limit_have_kube_schedulers_labels_and_units() -> None:
    one = (
        pod("web-1")
        .request({"nvidia.com/gpu": 2, "hugepages-2Mi": "4Mi"}, cpu="250m", memory="1Gi")
        .limit(cpu=2)
        .priority(1000)
        .on("n1")
        .build()
    )

    found = {
        (s.name, s.labels["resource"]): (s.labels["unit"], s.value)
        for family in text_string_to_metric_families(lines(one))
        for s in family.samples
    }

    assert found == {
        ("kube_pod_resource_request", "cpu"): ("cores", 0.25),
        ("kube_pod_resource_request", "memory"): ("bytes", 1 << 30),
        ("kube_pod_resource_request", "nvidia.com/gpu"): ("", 2),
        ("kube_pod_resource_request", "hugepages-2Mi"): ("bytes", 4 << 20),
        ("kube_pod_resource_limit", "cpu"): ("cores", 2),
    }
    assert (
        'kube_pod_resource_request{namespace="default",pod="web-1",node="n1",scheduler="",priority="1000",'
        'resource="cpu",unit="cores"} 0.25\n'
    ) in lines(one)


def test_both_families_are_announced_even_without_pods() -> None:
    assert [f.name for f in text_string_to_metric_families(lines())] == [
        "kube_pod_resource_request",
        "kube_pod_resource_limit",
    ]


def test_amounts_of_zero_are_left_out() -> None:
    assert amounts(pod("p").request(cpu=0, memory="1Mi").build()) == {
        ("kube_pod_resource_request", "memory"): 1 << 20
    }


@pytest.mark.parametrize(("phase", "shown"), [("Succeeded", 0), ("Failed", 0), ("Running", 1), ("", 1)])
def test_terminated_pods_are_left_out(phase: str, shown: int) -> None:
    bound = with_phase(pod("p").request(cpu=1).on("n1").build(), phase)

    assert len(amounts(bound)) == shown


def test_pod_without_a_node_is_shown_with_an_empty_one() -> None:
    waiting = with_phase(pod("p").request(cpu=1).build(), "Failed")

    assert 'node=""' in lines(waiting)
    assert amounts(waiting) == {("kube_pod_resource_request", "cpu"): 1}


def test_limits_count_containers_init_steps_the_pods_own_and_overhead() -> None:
    base = pod("p").build()
    init = Container(name="i", resources=ResourceRequirements(limits={"cpu": "3", "memory": "1Gi"}))
    main = Container(
        name="c", resources=ResourceRequirements(limits={"cpu": "1", "memory": "2Gi", "example.com/x": "1"})
    )
    spec = replace(
        base.spec,
        containers=(main, main),
        init_containers=(init,),
        overhead={"cpu": "100m", "ephemeral-storage": "1Gi"},
    )

    assert pod_limits(replace(base, spec=spec)) == {"cpu": 3100, "memory": 4 << 30, "example.com/x": 2}

    own = ResourceRequirements(limits={"cpu": "5", "example.com/x": "9"})
    assert pod_limits(replace(base, spec=replace(spec, resources=own))) == {
        "cpu": 5100,
        "memory": 4 << 30,
        "example.com/x": 2,
    }


@pytest.mark.parametrize(
    ("resource", "unit"),
    [
        ("cpu", "cores"),
        ("memory", "bytes"),
        ("ephemeral-storage", "bytes"),
        ("storage", "bytes"),
        ("hugepages-1Gi", "bytes"),
        ("attachable-volumes-csi-x", "integer"),
        ("example.com/x", ""),
    ],
)
def test_units_are_kube_schedulers(resource: str, unit: str) -> None:
    assert unit_of(resource) == unit


def test_text_comes_in_small_pieces() -> None:
    pods = [pod(f"p-{i}").request(cpu=1).build() for i in range(2 * PODS_IN_A_PIECE + 1)]

    pieces = list(pod_resource_lines(pods))

    sizes = [sum(line.startswith("kube_") for line in piece.splitlines()) for piece in pieces]
    assert sizes == [0, PODS_IN_A_PIECE, PODS_IN_A_PIECE, 1, 0, 0, 0, 0]


def test_hostile_names_arrive_as_printable_text() -> None:
    text = lines(pod('a"\n\x1b').request(cpu=1).build())

    assert all(line.isprintable() for line in text.splitlines())
    ((sample,),) = [f.samples for f in text_string_to_metric_families(text) if f.samples]
    assert sample.labels["pod"] == r'a"\n\x1b'
