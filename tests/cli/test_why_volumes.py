"""`why` and `queue` about pods with volumes: which claim, which class, which zone, how many too many, and who is to answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tidelog.api.objects import Node, Object, Pod
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b
from tidelog.testing import storage as s

ZONE = b.ZONE
Run = Callable[..., tuple[int, str]]


def pod(*claims: str, name: str = "p") -> Pod:
    found = b.pod(name).request(cpu="1").scheduler("default-scheduler")
    for claim in claims:
        found = found.pvc(claim)
    return found.build()


def nodes(count: int = 2) -> list[Node]:
    return [b.node(f"n{i}").label({ZONE: "ab"[i % 2]}).capacity(cpu="4").build() for i in range(count)]


def _users(count: int) -> list[Object]:
    """Pods on n0 with a volume each."""
    found: list[Object] = []
    for i in range(count):
        claim = s.claim(f"used-{i}", volume=f"v-{i}")
        found += [
            claim,
            s.volume(f"v-{i}", bound=claim),
            b.pod(f"user-{i}").pvc(f"used-{i}").on("n0").build(),
        ]
    return found


_BOUND = s.claim("data", storage_class="zonal", volume="pv-b")
_ALONE = s.claim("data", volume="pv", modes=["ReadWriteOncePod"])

CASES: dict[str, tuple[Sequence[Object], str, str]] = {
    "missing claim": (
        nodes(),
        "VolumeRestrictions rejects 2 nodes",
        'persistentvolumeclaim "data" not found',
    ),
    "claim that is not bound yet": (
        [*nodes(), s.storage_class(mode="Immediate"), s.claim("data")],
        "VolumeBinding rejects 2 nodes",
        f"claim data (1Gi of class fast) is not bound yet: the volume controller, or provisioner {s.PROVISIONER}, to give it a volume",
    ),
    "class that does not exist": (
        [*nodes(), s.claim("data", storage_class="gone")],
        "VolumeBinding rejects 2 nodes",
        "claim data (1Gi of class gone): storage class gone does not exist",
    ),
    "no free volume": (
        [
            *nodes(),
            s.local_class(),
            s.claim("data", storage_class="local"),
            s.volume("v", "500Mi", on={ZONE: "a"}),
        ],
        "VolumeBinding rejects 2 nodes",
        f"1 volumes of the class are free, and reached from nodes with {ZONE} In (a) (1), but none of them will do",
    ),
    "class for one zone": (
        [*nodes(), s.storage_class(zones=["c"]), s.claim("data")],
        "VolumeBinding rejects 2 nodes",
        f"class fast makes volumes only where {ZONE} c",
    ),
    "not enough space": (
        [*nodes(), s.storage_class(), s.csi_driver(storage_capacity=True), s.claim("data", "7Gi")],
        "VolumeBinding rejects 2 nodes",
        f"more free storage where the nodes are; {s.PROVISIONER} tells of nothing",
    ),
    "volume elsewhere": (
        [*nodes(1), _BOUND, s.volume("pv-b", bound=_BOUND, on={ZONE: "b"})],
        "VolumeBinding rejects 1 node",
        f"volume pv-b of claim data can be reached from nodes with {ZONE} In (b): room there",
    ),
    "volume in another zone": (
        [*nodes(1), _BOUND, s.volume("pv-b", bound=_BOUND, labels={ZONE: "b__c"})],
        "VolumeZone rejects 1 node",
        f"room in {ZONE} b, c, where volume pv-b of claim data is",
    ),
    "too many volumes": (
        [*nodes(1), s.csi_node("n0", {s.PROVISIONER: 2}), *_users(2), s.storage_class(), s.claim("data")],
        "NodeVolumeLimits rejects 1 node",
        f"1 volume of {s.PROVISIONER} fewer on n0, which comes closest: it attaches 2 at most, has 2, and the pod brings 1",
    ),
    "claim for one pod alone": (
        [*nodes(), _ALONE, s.volume("pv", bound=_ALONE), b.pod("holder").pvc("data").on("n1").build()],
        "VolumeRestrictions rejects 2 nodes",
        "the end of default/holder on n1: claim data is for one pod alone (ReadWriteOncePod)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_why_names_what_keeps_the_volumes_pod_waiting(case: str, driver: Driver, run: Run) -> None:
    objects, rejects, advice = CASES[case]
    driver.put(*objects, pod("data"))
    driver.settle()

    code, told = run("why", "p")

    assert code == 0
    assert rejects in told
    assert advice in told


def test_why_says_whom_a_pod_waits_for_that_has_its_place(driver: Driver, run: Run) -> None:
    driver.put(*nodes(1), s.storage_class(), s.claim("data"), pod("data"))
    driver.settle()

    code, told = run("why", "p")
    _, queue = run("queue")

    awaited = f"provisioner {s.PROVISIONER} to make a volume for claim default/data where node n0 reaches it"
    assert code == 0
    assert "for answers to what was written for it, with its place reserved on n0" in told
    assert awaited in told
    assert "selects node n0 for persistentvolumeclaim default/data" in told
    assert f"reserved on n0, {awaited}" in queue


def test_choice_of_a_bound_pod_is_that_of_the_attempt_which_chose(driver: Driver, run: Run) -> None:
    claim = s.claim("data", storage_class="local")
    volume = s.volume("v")
    driver.put(*nodes(2), s.local_class(), claim, volume, pod("data"))
    driver.settle()
    bound = s.claim("data", storage_class="local", volume="v")
    driver.put(bound)
    driver.settle()

    code, told = run("why", "p")

    assert code == 0
    assert driver.placements()["default/p"] in ("n0", "n1")
    assert "binds persistentvolume v to claim default/data" in told
    assert "2 nodes" in told
