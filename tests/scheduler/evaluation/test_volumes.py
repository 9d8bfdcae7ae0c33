"""The fast evaluation gives the plain one's answers about pods with volumes: in random stories with attempts in flight and interrupted ones, answers and restarts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidelog.api.objects import Object
from tidelog.api.storage import PersistentVolume, PersistentVolumeClaim
from tidelog.api.volumes import BIND_COMPLETED, SELECTED_NODE, reference_to
from tidelog.eventlog.records import ObjectDeleted, ObjectPut, Reserved, decode_body
from tidelog.framework.effort import Paused
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.scheduler.core import Core
from tidelog.testing import builders as b
from tidelog.testing import storage as s

CLAIMS = 6
NODES = 3
CLASSES = ("local", "zonal", "fast")
STEPS = (
    "pod",
    "pod",
    "attempt",
    "attempt",
    "pause",
    "commit",
    "commit",
    "answer",
    "unpod",
    "unclaim",
    "volume",
    "unvolume",
    "node",
    "limit",
    "wait",
    "restart",
)
Story = Sequence[tuple[str, int]]


class World:
    """Three nodes in two zones, each with two disks of its own; volumes of zones; a class whose volumes are made; and claims of all of them."""

    def __init__(self, *, fast: bool) -> None:
        self.driver = driver = Driver(core=Core(Registry(), fast=fast))
        self.fast = fast
        driver.start()
        driver.put(*(self.node(i) for i in range(NODES)))
        driver.put(s.local_class("local"), s.local_class("zonal"), s.storage_class("fast", zones=["z0"]))
        for i in range(2 * NODES):
            driver.put(self.volume(i))
        for i in range(CLAIMS):
            driver.put(self.claim(i))
        self.pods = 0

    @staticmethod
    def node(i: int, zone: int = -1) -> Object:
        where = f"z{i % 2 if zone < 0 else zone}"
        return b.node(f"n{i}").label({b.HOSTNAME: f"n{i}", b.ZONE: where}).capacity(cpu="4").build()

    @staticmethod
    def volume(i: int, size: int = 0) -> PersistentVolume:
        if i % 3 == 2:
            return s.volume(f"v{i}", f"{size or 3}Gi", "zonal", on={b.ZONE: f"z{i % 2}"})
        return s.volume(f"v{i}", f"{size or 1 + i % 4}Gi", "local", on={b.HOSTNAME: f"n{i % NODES}"})

    @staticmethod
    def claim(i: int) -> PersistentVolumeClaim:
        return s.claim(f"c{i}", f"{1 + i % 3}Gi", CLASSES[i % 3 if i < 4 else 0])

    def do(self, step: str, number: int) -> None:
        driver, objects = self.driver, self.driver.core.objects
        claim = objects.get(f"PersistentVolumeClaim/default/c{number % CLAIMS}")
        volume = objects.get(f"PersistentVolume//v{number % (2 * NODES)}")
        if step == "pod":
            self.pods += 1
            made = b.pod(f"p{self.pods}").request(cpu="1").scheduler("default-scheduler")
            for more in range(1 + number % 2):
                made = made.pvc(f"c{(number + more) % CLAIMS}")
            driver.put(made.build())
        elif step == "attempt":
            driver.attempt()
        elif step == "pause":
            try:
                decision = driver.core.attempt(driver.now, 10 if self.fast else 45)
            except Paused:
                decision = driver.core.attempt(driver.now)
            if decision is not None:
                driver.submitted.append(decision)
        elif step == "commit":
            driver.commit(most=1 + number % 2)
        elif step == "answer" and isinstance(claim, PersistentVolumeClaim):
            self.answer(claim)
        elif step == "unpod":
            if (found := objects.get(f"Pod/default/p{number}")) is not None:
                driver.delete(found)
        elif step == "unclaim":
            if claim is not None:
                driver.delete(claim)
            driver.put(self.claim(number % CLAIMS))
        elif step == "volume" and (volume is None or volume.spec.claim_ref is None):  # type: ignore[attr-defined]
            driver.put(self.volume(number % (2 * NODES), 1 + number % 4))
        elif step == "unvolume" and volume is not None:
            driver.delete(volume)
        elif step == "node":
            driver.put(self.node(number % NODES, number % 2))
        elif step == "limit":
            driver.put(s.csi_node(f"n{number % NODES}", {s.PROVISIONER: number % 4}))
        elif step == "wait":
            driver.now += 10**9 * (1 if number else 700)
        elif step == "restart":
            driver.submitted.clear()
            driver.core = recover(driver.records, driver.registry)
            driver.start()

    def answer(self, claim: PersistentVolumeClaim) -> None:
        """Bind the claim to the volume that names it, or make one where its node was selected, as the volume controller does."""
        driver, meta = self.driver, claim.metadata
        volumes = [v for v in driver.core.objects.values() if isinstance(v, PersistentVolume)]
        mine = [v for v in volumes if v.spec.claim_ref is not None and v.spec.claim_ref.name == meta.name]
        node = meta.annotations.get(SELECTED_NODE)
        if not mine and node is not None and not claim.spec.volume_name:
            mine = [s.volume(f"made-{meta.name}", "9Gi", "fast", on={b.HOSTNAME: node}, bound=claim)]
            driver.put(*mine)
        if not mine or claim.spec.volume_name:
            return
        (volume, *_) = mine
        reference = reference_to(claim)
        driver.put(
            replace(
                volume,
                spec=replace(volume.spec, claim_ref=reference),
                status=replace(volume.status, phase="Bound"),
            ),
            replace(
                claim,
                metadata=replace(meta, annotations={**meta.annotations, BIND_COMPLETED: "yes"}),
                spec=replace(claim.spec, volume_name=volume.metadata.name),
                status=replace(claim.status, phase="Bound"),
            ),
        )


def promises(driver: Driver) -> None:
    """No `Reserved` record gives a volume away that another one gave to somebody else, unless the volume was put anew meanwhile."""
    given: dict[str, str] = {}
    for record in driver.records:
        body = decode_body(record)
        if isinstance(body, ObjectPut | ObjectDeleted):
            given.pop(record.key, None)
        for write in body.writes if isinstance(body, Reserved) else ():
            ref = write.patch.get("spec", {}).get("claimRef")
            if write.key.startswith("PersistentVolume/") and ref:
                assert given.get(write.key, ref["name"]) == ref["name"], (record.seq, write)
                given[write.key] = ref["name"]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), max_size=40))
def test_fast_and_plain_evaluation_agree_on_pods_with_volumes(story: Story) -> None:
    worlds = [World(fast=True), World(fast=False)]
    for world in worlds:
        for step, number in story:
            world.do(step, number)
        world.driver.commit()
        world.driver.settle()
        promises(world.driver)

    fast, plain = (world.driver for world in worlds)
    assert [msgspec.structs.astuple(r) for r in fast.records] == [
        msgspec.structs.astuple(r) for r in plain.records
    ]
    report = verify(fast.records, fast.registry)
    assert report.first_difference is None
    assert fast.core.digest() == report.digest


def two_pods_alike(*claims: PersistentVolumeClaim) -> Driver:
    """Pods with these claims were tried in vain: no node has room. They are told apart by nothing, and what is known of them was asked about the first."""
    driver = Driver()
    driver.start()
    driver.put(*(World.node(i) for i in range(2)), s.storage_class("fast"), s.local_class("zonal"))
    for claim in claims:
        name = claim.metadata.name
        made = b.pod(name).request(cpu="5").pvc(name).scheduler("default-scheduler").build()
        driver.put(*made_for(claim), claim, made)
        driver.settle()
    return driver


def made_for(claim: PersistentVolumeClaim) -> list[PersistentVolume]:
    if not claim.spec.volume_name:
        return []
    return [s.volume(claim.spec.volume_name, storage_class="fast", on={b.ZONE: "z0"}, bound=claim)]


def roomy() -> Object:
    return b.node("n0").label({b.HOSTNAME: "n0", b.ZONE: "z0"}).capacity(cpu="8").build()


def test_volume_that_goes_is_missed_by_no_pod_that_was_like_the_one_that_had_it() -> None:
    first, second = (s.claim(name, storage_class="fast", volume=f"of-{name}") for name in ("a", "b"))
    driver = two_pods_alike(first, second)

    for gone in (driver.pod("a"), first, *made_for(first)):
        driver.delete(gone)
    driver.put(roomy())
    driver.settle()

    assert driver.pod("b").spec.node_name == "n0"
    assert verify(driver.records, driver.registry).first_difference is None


def test_volume_that_is_promised_to_one_claim_is_not_for_a_pod_that_was_like_the_one_that_has_it() -> None:
    first, second = (s.claim(name, storage_class="zonal") for name in ("a", "b"))
    driver = two_pods_alike(first, second)

    driver.put(s.volume("promised", "9Gi", "zonal", on={b.ZONE: "z0"}, bound=first))
    driver.delete(driver.pod("a"))
    driver.put(roomy())
    driver.settle()

    assert driver.pod("b").spec.node_name == ""
    assert verify(driver.records, driver.registry).first_difference is None
