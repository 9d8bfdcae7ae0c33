"""What the recorded cases do not ask of the plugins for volumes: preemption, bounds that spare a look, crashes that are repaired, other modes."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidelog.api.objects import AwsElasticBlockStore, LabelSelector, Object, ObjectMeta, Pod, Volume
from tidelog.api.quantity import parse_exact
from tidelog.api.storage import (
    CSIDriver,
    CSINodeDriver,
    CSINodeSpec,
    CSIStorageCapacity,
    PersistentVolume,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
)
from tidelog.api.volumes import PROVISIONED_BY, STORAGE_PROVISIONER
from tidelog.configuration.configuration import resolve_configuration
from tidelog.eventlog.records import Nominated, Reserved, Unschedulable, decode_body
from tidelog.framework.effort import Effort
from tidelog.framework.storage import Storage
from tidelog.plugins.registry import Registry
from tidelog.plugins.volumes.limits import Attached
from tidelog.plugins.volumes.matching import Candidates, volumes_for
from tidelog.replay.driver import Driver
from tidelog.replay.verify import verify
from tidelog.testing import builders as b
from tidelog.testing import storage as s

HOST = "kubernetes.io/hostname"


def started(*objects: Object, compat: str = "default") -> Driver:
    driver = Driver()
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "tidelog": {"compat": compat},
    }
    driver.start(resolve_configuration(document, Registry()).configuration)
    driver.put(*objects)
    return driver


def pod(name: str, *claims: str, priority: int = 0) -> Any:
    found = b.pod(name).request(cpu="1").priority(priority).scheduler("default-scheduler")
    for claim in claims:
        found = found.pvc(claim)
    return found


def bound(name: str, **volume: Any) -> list[Object]:
    claim = s.claim(name, volume=f"v-{name}")
    return [claim, s.volume(f"v-{name}", bound=claim, **volume)]


def last(driver: Driver) -> Any:
    return decode_body(driver.records[-1])


def test_preemption_frees_an_attachment() -> None:
    driver = started(
        b.node("n").capacity(cpu="8").build(),
        s.csi_node("n", {s.PROVISIONER: 1}),
        *bound("low"),
        *bound("high"),
        pod("low", "low").on("n").build(),
    )

    driver.put(pod("high", "high", priority=10).build())
    driver.settle()

    nominated = [body for r in driver.records if isinstance(body := decode_body(r), Nominated) and body.node]
    assert [(body.node, body.victims) for body in nominated] == [("n", ("Pod/default/low",))]
    assert verify(driver.records, driver.registry).first_difference is None


def test_what_is_attached_to_nodes_that_went_is_forgotten() -> None:
    def kept() -> int:
        gc.collect()
        return sum(isinstance(found, Attached) for found in gc.get_objects())

    driver, before = started(), kept()

    for i in range(6):
        name = f"n{i}"
        driver.put(b.node(name).build(), s.csi_node(name, {s.PROVISIONER: 1}))
        driver.put(*bound(f"held-{name}"), pod(f"held-{name}", f"held-{name}").on(name).build())
        driver.put(*bound(name), pod(name, name).build())
        driver.settle()
        driver.delete(b.node(name).build())

    assert kept() == before + 1


@pytest.mark.parametrize("compat", ["default", "upstream"])
@pytest.mark.parametrize("claim", ["high", "other"])
def test_attachment_is_kept_for_a_pod_for_which_room_is_made(compat: str, claim: str) -> None:
    """Only whoever mounts the same claim needs none of his own."""
    driver = started(
        b.node("n").capacity(cpu="2").build(),
        s.csi_node("n", {s.PROVISIONER: 1}),
        *bound("high"),
        *bound("other"),
        pod("low").request(cpu="2").on("n").build(),
        compat=compat,
    )
    driver.put(pod("high", "high", priority=10).build())
    driver.settle()

    driver.put(pod("late", claim).request(cpu="0").build())
    driver.settle()
    before = driver.placements().get("default/late")
    driver.delete(pod("low").build())
    driver.advance(seconds=20)

    assert before == ("n" if claim == "high" else None)
    assert driver.placements()["default/high"] == "n"
    assert verify(driver.records, driver.registry).first_difference is None


def volume_of(driver: str) -> PersistentVolume:
    return s.volume("v", bound=s.claim("held", volume="v"), driver=driver)


def must_be_installed(is_so: bool) -> CSIDriver:
    made = s.csi_driver()
    return replace(made, spec=replace(made.spec, prevent_pod_scheduling_if_missing=is_so))


def attached(volume: str) -> VolumeAttachment:
    source = VolumeAttachmentSource(persistent_volume_name=volume)
    spec = VolumeAttachmentSpec(attacher=s.PROVISIONER, node_name="n", source=source)
    return VolumeAttachment(metadata=ObjectMeta(name=f"of-{volume}", uid=f"of-{volume}"), spec=spec)


LIMITED = s.csi_node("n", {s.PROVISIONER: 1})
UNLIMITED = replace(LIMITED, spec=CSINodeSpec(drivers=(CSINodeDriver(name=s.PROVISIONER, node_id="n"),)))
HOLDER = pod("holder", "held").on("n").build()
LEAVES_ROOM: dict[str, tuple[list[Object], Object, Object | None]] = {
    "the claim of a pod there goes": (
        [LIMITED, HOLDER, s.claim("held"), s.storage_class()],
        s.claim("held"),
        None,
    ),
    "its class goes": ([LIMITED, HOLDER, s.claim("held"), s.storage_class()], s.storage_class(), None),
    "its volume goes": ([LIMITED, HOLDER, *bound("held")], bound("held")[1], None),
    "its claim finds a volume of another driver": (
        [LIMITED, HOLDER, s.claim("held"), s.storage_class(), volume_of("other")],
        s.claim("held"),
        s.claim("held", volume="v"),
    ),
    "the volume comes that its claim names, of another driver": (
        [LIMITED, HOLDER, s.claim("held", volume="v"), s.storage_class()],
        volume_of("other"),
        volume_of("other"),
    ),
    "the limit ends": ([LIMITED, HOLDER, *bound("held")], LIMITED, UNLIMITED),
    "the driver is installed": ([s.csi_node("n", {}), must_be_installed(True)], LIMITED, UNLIMITED),
    "the driver need not be installed": (
        [s.csi_node("n", {}), must_be_installed(True)],
        s.csi_driver(),
        must_be_installed(False),
    ),
    "there is no such driver": ([s.csi_node("n", {}), must_be_installed(True)], s.csi_driver(), None),
    "a pod with the same claim comes": (
        [LIMITED, attached("v-late")],
        HOLDER,
        pod("too", "late").on("n").build(),
    ),
}
"""What happens → the objects before; one of them, and its new version."""


@pytest.mark.parametrize("compat", ["default", "upstream"])
@pytest.mark.parametrize("what", LEAVES_ROOM)
def test_pod_is_woken_when_its_volumes_may_have_room(what: str, compat: str) -> None:
    """kube-scheduler has it wait for the flush."""
    before, old, new = LEAVES_ROOM[what]
    driver = started(b.node("n").capacity(cpu="8").build(), *before, *bound("late"), compat=compat)
    driver.put(pod("late", "late").build())
    driver.settle()
    assert last(driver).plugins == ("NodeVolumeLimits",)

    if new is None:
        driver.delete(old)
    else:
        driver.put(new)
    driver.advance(seconds=20)

    assert driver.placements().get("default/late") == ("n" if compat == "default" else None)
    assert verify(driver.records, driver.registry).first_difference is None


def test_pod_sleeps_when_a_claim_gets_the_volume_made_for_it() -> None:
    """It counts for the driver for which the claim has counted, and volumes are made all the time."""
    holder = pod("holder", "held").on("n").build()
    driver = started(
        b.node("n").capacity(cpu="8").build(),
        LIMITED,
        holder,
        s.claim("held"),
        s.storage_class(),
        *bound("late"),
    )
    driver.put(pod("late", "late").build())
    driver.settle()
    attempts = driver.kinds().count("Unschedulable")

    volume, claim = volume_of(s.PROVISIONER), s.claim("held", volume="v")
    by = {PROVISIONED_BY: s.PROVISIONER, STORAGE_PROVISIONER: s.PROVISIONER}
    for made in (volume, claim):
        annotations = {**made.metadata.annotations, **by}
        driver.put(replace(made, metadata=replace(made.metadata, annotations=annotations)))
    driver.advance(seconds=20)

    assert driver.kinds().count("Unschedulable") == attempts == 1


def with_disk(made: b.PodBuilder) -> Pod:
    found = made.build()
    disk = Volume(name="disk", aws_elastic_block_store=AwsElasticBlockStore(volume_id="vol-1"))
    return replace(found, spec=replace(found.spec, volumes=(disk,)))


ONLY = s.claim("only", volume="v", modes=["ReadWriteOncePod"])
HELD = [b.node("m").cordon().build(), ONLY, s.volume("v", bound=ONLY), pod("holder", "only").on("m").build()]
NEIGHBOUR = with_disk(pod("holder").namespace("other").on("n"))


@pytest.mark.parametrize("compat", ["default", "upstream"])
@pytest.mark.parametrize(
    ("before", "late", "gone"),
    [
        (HELD, pod("late", "only").build(), b.node("m").build()),
        ([NEIGHBOUR], with_disk(pod("late")), NEIGHBOUR),
    ],
    ids=["the node of the pod that has its claim", "a pod of another namespace that has its disk"],
)
def test_pod_is_woken_when_what_has_its_volume_goes(
    before: list[Object], late: Pod, gone: Object, compat: str
) -> None:
    """kube-scheduler has it wait for the flush."""
    driver = started(b.node("n").capacity(cpu="8").build(), *before, late, compat=compat)
    driver.settle()
    assert "VolumeRestrictions" in last(driver).plugins

    driver.delete(gone)
    driver.advance(seconds=20)

    assert driver.placements().get("default/late") == ("n" if compat == "default" else None)
    assert verify(driver.records, driver.registry).first_difference is None


@pytest.mark.parametrize(
    ("before", "late", "gone"),
    [
        ([NEIGHBOUR], with_disk(pod("late")), b.node("m").build()),
        (
            [NEIGHBOUR, pod("web").namespace("other").on("n").build()],
            with_disk(pod("late")),
            pod("web").namespace("other").build(),
        ),
    ],
    ids=["a node, and it waits for a disk", "a pod of another namespace without its disk"],
)
def test_pod_sleeps_when_what_goes_does_not_have_its_volume(
    before: list[Object], late: Pod, gone: Object
) -> None:
    driver = started(b.node("n").capacity(cpu="8").build(), b.node("m").cordon().build(), *before, late)
    driver.settle()

    driver.delete(gone)
    driver.advance(seconds=20)

    assert driver.kinds().count("Unschedulable") == 1
    assert "default/late" not in driver.placements()


def test_preemption_takes_a_claim_for_one_pod_alone_from_its_holder() -> None:
    claim = s.claim("only", volume="v", modes=["ReadWriteOncePod"])
    driver = started(
        *(b.node(name).capacity(cpu="8").build() for name in ("m", "n")),
        claim,
        s.volume("v", bound=claim),
        pod("holder", "only").on("n").build(),
    )

    driver.put(pod("high", "only", priority=10).build())
    driver.settle()

    nominated = [body for r in driver.records if isinstance(body := decode_body(r), Nominated) and body.node]
    assert [(body.node, body.victims) for body in nominated] == [("n", ("Pod/default/holder",))]


def test_preemption_does_not_help_where_the_volume_is_not() -> None:
    driver = started(
        b.node("n").label({HOST: "n"}).capacity(cpu="1").build(),
        *bound("data", on={HOST: "elsewhere"}),
        pod("low").on("n").build(),
    )

    driver.put(pod("high", "data", priority=10).build())
    driver.settle()

    assert isinstance(last(driver), Unschedulable)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=25), st.integers(0, 3))
def test_bounds_let_no_pod_past_a_limit(story: list[tuple[int, int]], limit: int) -> None:
    """Skipping NodeVolumeLimits where every node has room gives the same places as asking about every node."""
    found = []
    for compat in ("default", "upstream"):
        driver = started(compat=compat)
        for name in ("m", "n"):
            driver.put(b.node(name).capacity(cpu="40").build(), s.csi_node(name, {s.PROVISIONER: limit}))
        driver.put(*(obj for i in range(6) for obj in bound(f"c{i}")))
        for number, (step, which) in enumerate(story):
            if step < 2:
                driver.put(pod(f"p{number}", f"c{which}").build())
            elif (known := driver.core.objects.get(f"Pod/default/p{which}")) is not None:
                driver.delete(known)
            driver.settle()
        found.append(driver.placements())
    assert found[0] == found[1]


def test_pods_whose_claims_are_asked_about_in_another_order_are_not_alike() -> None:
    """The smaller claim is asked about first, and says why no node will do."""
    driver = started(
        b.node("n").capacity(cpu="8").build(),
        s.local_class(),
        s.storage_class("counted"),
        s.csi_driver(storage_capacity=True),
        *(s.claim(f"local-{size}", size, "local") for size in ("1Gi", "2Gi")),
        s.claim("counted", "1Gi", "counted"),
    )

    driver.put(pod("a", "local-1Gi", "counted").build(), pod("b", "local-2Gi", "counted").build())
    driver.settle()

    said = [condition.message for name in "ab" for condition in driver.pod(name).status.conditions]
    assert "didn't find available persistent volumes to bind" in said[0]
    assert "did not have enough free storage" in said[1]


def test_capacity_that_only_says_how_large_a_volume_may_be_counts_as_none_and_crashes_nobody() -> None:
    capacity = CSIStorageCapacity(
        metadata=ObjectMeta(name="c", namespace="kube-system"),
        storage_class_name="fast",
        node_topology=LabelSelector(),
        maximum_volume_size="5Gi",
    )
    driver = started(
        *(b.node(name).build() for name in ("m", "n")),
        s.storage_class(),
        s.csi_driver(storage_capacity=True),
        capacity,
        s.claim("data"),
    )

    driver.put(pod("web", "data").build())
    driver.settle()

    assert driver.kinds()[-1] == "Reserved"


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["a", "b", ""])), max_size=8),
    st.integers(1, 4),
    st.sampled_from("abc"),
)
def test_looked_up_volume_is_the_one_that_trying_all_would_find(
    volumes: list[tuple[int, str]], wanted: int, host: str
) -> None:
    made = [
        s.volume(f"v{i}", f"{size}Gi", on={HOST: where} if where else None)
        for i, (size, where) in enumerate(volumes)
    ]
    claim = s.claim("c", f"{wanted}Gi", "local")
    reached = [
        v
        for v, (_, where) in zip(made, volumes, strict=True)
        if where in ("", host) and parse_exact(v.spec.capacity["storage"]) >= parse_exact(f"{wanted}Gi")
    ]
    best = min(
        reached, key=lambda v: (parse_exact(v.spec.capacity["storage"]), v.metadata.name), default=None
    )

    storage = Storage()
    for each in made:
        storage.put(each)
    candidates = Candidates(claim, volumes_for(claim, storage), storage.local_volumes, Effort())
    assert candidates.on({HOST: host}, set()) == best


@pytest.mark.parametrize("compat", ["default", "upstream"])
def test_driver_that_counts_space_no_more_wakes_pods_with_claims(compat: str) -> None:
    """kube-scheduler looks at inline volumes only, so that such a pod waits for five minutes there."""
    driver = started(
        b.node("n").build(),
        s.storage_class(),
        s.csi_driver(storage_capacity=True),
        s.claim("data"),
        compat=compat,
    )
    driver.put(pod("web", "data").build())
    driver.settle()
    assert isinstance(last(driver), Unschedulable)

    driver.put(s.csi_driver(storage_capacity=False))
    driver.advance(20)

    assert (driver.kinds()[-1] == "Reserved") is (compat == "default")


def test_disk_of_a_host_that_comes_or_goes_is_seen_though_the_nodes_were_asked_before() -> None:
    def disk(number: int, size: str = "9Gi") -> Object:
        return s.volume(f"disk-{number}", size, "local", on={HOST: f"n{number:02}"})

    driver = started(
        s.local_class(), *(b.node(f"n{i:02}").label({HOST: f"n{i:02}"}).build() for i in range(20))
    )
    driver.put(disk(1, "1Gi"), *(s.claim(f"c{i}", "5Gi", "local") for i in range(5)))
    driver.put(*(pod(f"p{i}", f"c{i}").build() for i in range(3)))
    driver.settle()
    assert not reserved(driver), "all nodes were asked, and none has a disk that is large enough"

    driver.put(disk(7))
    driver.advance(10)
    driver.put(disk(1, "9Gi"), disk(9))
    driver.delete(disk(9))
    driver.advance(10)
    driver.put(pod("p3", "c3").build())
    driver.settle()

    assert reserved(driver) == ["n07", "n01"]


def reserved(driver: Driver) -> list[str]:
    bodies = (decode_body(record) for record in driver.records)
    return [body.node for body in bodies if isinstance(body, Reserved)]
