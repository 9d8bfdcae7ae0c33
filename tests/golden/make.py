"""Makes golden logs: `python -m tests.golden.make "the reason" [NAME…]` those that are missing, and again those that are named. Read README.md first.

Each is a story of a small cluster. What they are for is to notice when a change of the code decides old logs differently, so they are made
once and then kept.

For each numbered behaviour there is one of its name, in which something happens twice: without the behaviour, and with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.worlds.histories import node, pod, random_history
from tidelog.api.objects import LabelSelector, LabelSelectorRequirement
from tidelog.api.storage import PersistentVolumeClaim
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import resolve_configuration
from tidelog.daemon.actors.volume_steps import provided
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Draft, LossAccepted, SchedulerStarted
from tidelog.eventlog.transfer import export_log
from tidelog.framework.behaviours import (
    ANSWERS_ARE_AWAITED,
    BINDINGS_NEED_NODES,
    BOUND_AS_THEY_ARE,
    FAILURES_STAND,
    GROUPS_SAY_AGAIN,
    LEAVING_HURTS_LATER,
    LESS_ATTACHED_WAKES,
    LOSS_ENDS_ATTEMPTS,
    LOSS_ENDS_WAITS,
    MEMBERS_ARE_TOLD_APART,
    OBSTACLES_GONE_WAKE,
    PLANS_NEED_DEVICES,
    PROMISED_VOLUMES_COUNT,
    PROMISES_STAY,
    QUORUMS_LAST,
    STAYING_TAKES_NOTHING,
)
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.replay.playback import recover
from tidelog.testing import builders as b
from tidelog.testing import devices, storage

HERE = Path(__file__).resolve().parent


def spread() -> Driver:
    """Twelve pods over three zones, hard and soft; a zone is lost and comes back."""
    driver = Driver()
    driver.start()
    nodes = [node(f"{zone}{i}", zone).build() for zone in "abc" for i in range(2)]
    driver.put(*nodes)
    for i in range(12):
        made = pod(f"web-{i:02}", "500m").label(app="web").spread(b.ZONE, selector="app=web")
        driver.put(made.spread(b.HOSTNAME, selector="app=web", soft=True).build())
    driver.settle()
    for lost in nodes[4:]:
        driver.delete(lost)
    driver.put(pod("late", "500m").label(app="web").spread(b.ZONE, selector="app=web").build())
    driver.advance(seconds=30)
    driver.put(*nodes[4:])
    driver.advance(seconds=30)
    return driver


def preemption() -> Driver:
    """Important pods make room for themselves, a disruption budget in the way of some victims."""
    driver = Driver()
    driver.start()
    driver.put(*(node(f"n{i}", "abc"[i]).build() for i in range(3)))
    driver.put(b.pdb("web", "app=web", min_available=2))
    driver.put(*(pod(f"web-{i}", "1").label(app="web").grace(10).build() for i in range(6)))
    driver.put(*(pod(f"batch-{i}", "1").label(app="batch").grace(10).build() for i in range(6)))
    driver.settle()
    driver.put(*(pod(f"vip-{i}", "2").priority(100 + i).build() for i in range(3)))
    driver.settle()
    driver.advance(seconds=10)
    for record in list(driver.records):
        if record.kind == "Evicted":
            driver.delete(driver.pod(record.key.rpartition("/")[2]))
    driver.advance(seconds=60)
    return driver


def interrupted() -> Driver:
    """Attempts in flight while nodes are cordoned, deleted and filled: some are called off."""
    driver = Driver()
    driver.start()
    nodes = [node(f"n{i}", "ab"[i % 2], cpu="2").build() for i in range(4)]
    driver.put(*nodes, *(pod(f"p{i}").build() for i in range(8)))
    for _ in range(4):
        driver.attempt()
    driver.put(
        b.node("n0").label({b.ZONE: "a", b.HOSTNAME: "n0"}).capacity(cpu="2", memory="8Gi").cordon().build()
    )
    driver.commit(2)
    driver.delete(nodes[1])
    driver.commit()
    driver.settle()
    driver.advance(seconds=400)
    driver.put(nodes[0])
    driver.advance(seconds=5)
    return driver


def gangs() -> Driver:
    """A gang that fills a rack, one that finds none, pods that evict members of the first, and a rack that takes both gangs in the end."""
    driver = Driver()
    gates = {"featureGates": {"TopologyAwareWorkloadScheduling": True}}
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "tidelog": gates,
    }
    driver.start(resolve_configuration(file, driver.registry).configuration)
    driver.put(*(node(f"{rack}{i}", rack, cpu="2").build() for rack in "ab" for i in range(2)))
    for gang in ("train", "late"):
        driver.put(b.pod_group(gang, min_count=3, level=b.ZONE))
        driver.put(*(pod(f"{gang}-{i}").group(gang).grace(10).build() for i in range(3)))
        driver.put(*(pod(f"beside-{gang}-{i}").priority(10).grace(10).build() for i in range(2)))
        driver.settle()
        driver.advance(seconds=10)
    driver.put(*(pod(f"vip-{i}", "2").priority(100).build() for i in range(2)))
    driver.settle()
    driver.advance(seconds=10)
    for record in list(driver.records):
        if record.kind == "Evicted":
            driver.delete(driver.pod(record.key.rpartition("/")[2]))
    driver.advance(seconds=60)
    for name in ("train-0", "train-1", "train-2"):
        if f"Pod/default/{name}" not in driver.core.objects:
            driver.put(pod(name).group("train").grace(10).build())
    driver.put(*(node(f"c{i}", "c", cpu="4").build() for i in range(2)))
    driver.advance(seconds=60)
    return driver


# --- behaviours ---------------------------------------------------------------------------------------------------------


def twice(
    number: int, happens: Callable[[Driver, str], None], *, beside: tuple[int, ...] = (), **tidelog: Any
) -> Driver:
    """It happens in a cluster configured without the behaviour of this number, and again with it. `tidelog`: that section of the configuration; `beside`: behaviours in force both times."""
    driver = Driver()
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "tidelog": tidelog,
    }
    new = replace(resolve_configuration(file, driver.registry).configuration, behaviours=(*beside, number))
    driver.start(replace(new, behaviours=beside))
    happens(driver, "old")
    driver.configure(new)
    happens(driver, "new")
    return driver


def guarded_starting_pods() -> Driver:
    """A pod that could make room only by the end of a protected one that has not started, whose budget allows nothing."""

    def happens(driver: Driver, when: str) -> None:
        web, there = f"web-{when}", {b.HOSTNAME: when}
        driver.put(node(when, "a", cpu="1").build(), b.pdb(web, f"app={web}", min_available=1))
        driver.put(pod(web).label(app=web).guarded_below(100).on(when).phase("Pending").build())
        driver.put(pod(f"vip-{when}").priority(10).node_selector(there).build())
        driver.advance(seconds=5)

    return twice(1, happens, featureGates={"DisruptionPolicyInPriorityClass": True})


def own_levels_wake() -> Driver:
    """A gang for which there is no rack with room, while a node says every minute that it was seen."""

    def happens(driver: Driver, when: str) -> None:
        gang = f"gang-{when}"
        racks = [node(f"{when}-{rack}", rack, cpu="2").label(of=when) for rack in "ab"]
        driver.put(*(rack.build() for rack in racks), b.pod_group(gang, min_count=3, level=b.ZONE))
        driver.put(*(pod(f"{gang}-{i}").group(gang).node_selector({"of": when}).build() for i in range(3)))
        for minute in range(3):
            driver.advance(seconds=60)
            driver.put(racks[0].label(seen=str(minute)).build())

    return twice(2, happens, featureGates={"TopologyAwareWorkloadScheduling": True})


def generators_after_pre_filter() -> Driver:
    """A gang without a rack, of which PreFilter cannot read what the first member asks for."""
    broken = LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="In"),))

    def happens(driver: Driver, when: str) -> None:
        unreadable = pod(f"{when}-0").group(when).spread(b.HOSTNAME, selector=broken)
        driver.put(node(when, "a").build(), b.pod_group(when, min_count=2, level="rack"))
        driver.put(unreadable.build(), pod(f"{when}-1").group(when).build())
        driver.settle()

    return twice(3, happens, featureGates={"TopologyAwareWorkloadScheduling": True})


def one_image_size() -> Driver:
    """An image that is large on the first node and small on the second, which is the emptier one."""

    def happens(driver: Driver, when: str) -> None:
        there = {"of": when}
        for number, size in ((1, 1000), (2, 30)):
            driver.put(node(f"{when}-{number}", "a").label(of=when).image("app:1", size * 2**20).build())
        driver.put(pod(f"old-{when}", "500m").on(f"{when}-1").build())
        driver.put(pod(f"web-{when}", "100m").image("app:1").node_selector(there).build())
        driver.settle()

    return twice(4, happens, compat="upstream")


def ties_follow_pods() -> Driver:
    """Equal nodes, on which light pods change no score; one comes first that was not there before."""

    def happens(driver: Driver, when: str) -> None:
        driver.put(*(node(f"{when}-{i}", "ab"[i % 2], cpu="64").label(of=when).build() for i in range(6)))
        for number in range(8):
            driver.put(pod(f"web-{when}-{number}", "10m").node_selector({"of": when}).build())
            driver.settle()

    return twice(5, happens)


def device_placements() -> Driver:
    """Four pods that want devices of one fabric; the node with the most room reaches one, and takes two of them."""

    def happens(driver: Driver, when: str) -> None:
        there = {"of": when}
        wide = node(f"{when}-wide", "a", cpu="64").label({"of": when, "fabric": "1"}).capacity(pods="2")
        large = node(f"{when}-large", "a", cpu="8").label({"of": when, "fabric": "2"})
        driver.put(wide.build(), large.build(), devices.device_class())
        for fabric in "12":
            asked = [
                {"key": key, "operator": "In", "values": [value]}
                for key, value in (("of", when), ("fabric", fabric))
            ]
            reached = {"nodeSelectorTerms": [{"matchExpressions": asked}]}
            name = f"{when}-fabric-{fabric}"
            driver.put(devices.resource_slice(name, ["x", "y"], pool=name, nodeSelector=reached))
        driver.put(devices.claim(f"shared-{when}", devices.request(count=2)), b.pod_group(when, min_count=4))
        like = pod(when, "100m").group(when).claim("c", claim=f"shared-{when}").node_selector(there)
        driver.put(*(like.named(f"{when}-{i}").build() for i in range(4)))
        driver.settle()

    return twice(6, happens)


def selectors_pause_nobody() -> Driver:
    """A claim whose selector loops ten thousand times over the device."""
    loop = "lists.range(100).all(x, lists.range(100).all(y, device.driver != string(x + y)))"

    def happens(driver: Driver, when: str) -> None:
        driver.put(node(when, "a").label(of=when).build(), devices.device_class())
        driver.put(devices.resource_slice(when, ["x"], node=when))
        driver.put(devices.claim(f"slow-{when}", devices.request("r", "gpu", loop)))
        driver.put(pod(f"web-{when}").claim("c", claim=f"slow-{when}").node_selector({"of": when}).build())
        driver.settle()

    return twice(7, happens)


def searches_of_their_own() -> Driver:
    """Ten nodes whose devices are asked for long, and one, the last, whose device is found at once."""
    long = "!lists.range(45).all(x, lists.range(100).all(y, device.driver != string(x + y)))"
    quick = f'has(device.attributes["{devices.DRIVER}"].quick)'

    def happens(driver: Driver, when: str) -> None:
        driver.put(devices.device_class())
        for name in (f"{when}-{i:02}" for i in range(11)):
            told = {"quick": True} if name.endswith("10") else {}
            driver.put(node(name, "a").label(of=when).build())
            driver.put(devices.resource_slice(name, [devices.device("x", attributes=told)], node=name))
        driver.put(devices.claim(f"slow-{when}", devices.request("r", "gpu", f"{quick} || {long}")))
        driver.put(pod(f"web-{when}").claim("c", claim=f"slow-{when}").node_selector({"of": when}).build())
        driver.settle()

    return twice(10, happens, beside=(7,))


def nominated_rejectors() -> Driver:
    """A pod that may go to one node only, and is tried there again while its victim is still going."""

    def happens(driver: Driver, when: str) -> None:
        there = f"{when}-1"
        driver.put(node(there, "a", cpu="1").build(), node(f"{when}-2", "a", cpu="1").build())
        driver.put(pod(f"low-{when}", "800m").on(there).grace(600).build())
        small = pod(f"small-{when}", "100m").on(there).build()
        driver.put(small)
        driver.put(pod(f"vip-{when}", "900m").priority(10).node_affinity(f"metadata.name={there}").build())
        driver.settle()
        driver.delete(small)
        driver.advance(seconds=60)

    return twice(8, happens, compat="upstream")


def lose(driver: Driver, from_: int) -> None:
    """A repair drops this record and all after it, and a scheduler comes back."""
    end, epoch = driver.core.seq, driver.core.epoch
    del driver.records[from_ - 1 :]
    driver.core = recover(driver.records, driver.registry)
    loss = LossAccepted(first=from_, last=end, epoch=epoch, reason="damage")
    driver.append(Draft(body=loss, author="repair"))
    driver.append(Draft(body=SchedulerStarted(epoch=epoch + 1, holder="driver"), author="scheduler"))


def loss_ends_attempts() -> Driver:
    """A repair drops the last outcomes of a group of which one member found no room; then there is room."""

    def happens(driver: Driver, when: str) -> None:
        there = {"of": when}
        driver.put(node(f"{when}-1", "a", cpu="2").label(of=when).build(), b.pod_group(when, min_count=2))
        driver.put(*(pod(f"{when}-{i}").group(when).node_selector(there).build() for i in range(3)))
        driver.settle()
        lose(driver, from_=max(record.seq for record in driver.records if record.kind == "Scheduled"))
        driver.put(node(f"{when}-2", "a", cpu="2").label(of=when).build())
        driver.settle()
        driver.advance(seconds=30)

    return twice(9, happens)


def nodes_wake_for_volumes() -> Driver:
    """A node that is full of volumes, and then one that says nothing of any limit; a claim for one pod alone that two pods mount."""

    def happens(driver: Driver, when: str) -> None:
        here = {"of": when}
        claims = [storage.claim(f"{when}-{i}", volume=f"pv-{when}-{i}") for i in range(2)]
        alone = storage.claim(f"{when}-alone", volume=f"pv-{when}-alone", modes=("ReadWriteOncePod",))
        driver.put(*(storage.volume(claim.spec.volume_name, bound=claim) for claim in (*claims, alone)))
        driver.put(*claims, alone, node(f"{when}-1", "a").label(here).build())
        driver.put(storage.csi_node(f"{when}-1", {storage.PROVISIONER: 1}))
        for claim in claims:
            driver.put(pod(claim.metadata.name).node_selector(here).pvc(claim.metadata.name).build())
        driver.settle()
        driver.put(node(f"{when}-2", "a").label(here).build())
        driver.advance(seconds=20)
        for i in range(2):
            driver.put(pod(f"{when}-holder-{i}").pvc(f"{when}-alone").on(f"{when}-{i + 1}").build())
        driver.put(pod(f"{when}-vip").priority(10).node_selector(here).pvc(f"{when}-alone").build())
        driver.advance(seconds=20)

    return twice(11, happens)


def group_errors_wait() -> Driver:
    """A claim of a gang's third member is missing, and the volumes of the others are refused; then there is the claim, and no refusal."""

    def happens(driver: Driver, when: str) -> None:
        here = {"of": when}
        claims = [storage.claim(f"{when}-{i}") for i in range(3)]
        driver.put(storage.storage_class(), node(when, "a").label(here).build())
        driver.put(*claims[1:], b.pod_group(when, min_count=2))
        for i in range(3):
            driver.put(pod(f"{when}-{i}").group(when).node_selector(here).pvc(f"{when}-{i}").build())
        for _ in range(6):
            driver.settle()
            driver.put(*claims[1:])
            driver.advance(seconds=0.5)
        driver.put(claims[0])
        driver.advance(seconds=30)

    return twice(12, happens)


def promises_stay() -> Driver:
    """A claim that five pods share: the promise of one comes true while two others have theirs in flight, and then the next one has its turn."""

    def happens(driver: Driver, when: str) -> None:
        here = {"of": when}
        claim = devices.claim(when, devices.request())
        driver.put(devices.device_class(), node(when, "a").label(here).build())
        driver.put(devices.resource_slice(when, ["gpu0"], node=when), claim)
        pods = [
            pod(f"{when}-{i}", "100m").node_selector(here).claim("gpu", claim=when).build() for i in range(5)
        ]
        driver.put(pods[0])
        driver.settle()
        driver.put(*pods[1:])
        for _ in range(3):
            driver.attempt()
        driver.commit(1)
        driver.attempt()  # Binds the first of them.
        driver.attempt()
        driver.commit()
        driver.advance(seconds=30)

    return twice(PROMISES_STAY, happens)


def plans_need_devices() -> Driver:
    """A preemption for a pod that wants a device, and the node's devices are gone before its record is written."""

    def happens(driver: Driver, when: str) -> None:
        here = {"of": when}
        claim = devices.claim(when, devices.request())
        driver.put(devices.device_class(), node(when, "a", cpu="1").label(here).build(), claim)
        driver.put(devices.resource_slice(when, ["gpu0"], node=when))
        driver.put(pod(f"{when}-victim", "1").node_selector(here).build())
        driver.settle()
        driver.put(pod(f"{when}-vip", "1").priority(10).node_selector(here).claim("gpu", claim=when).build())
        driver.attempt()
        driver.put(devices.resource_slice(when, [], node=when, generation=2))
        driver.commit()
        driver.advance(seconds=30)

    return twice(PLANS_NEED_DEVICES, happens)


def staying_takes_nothing() -> Driver:
    """While a pod's decision is on its way, one that is on its node begins to terminate, as does one that keeps others away, elsewhere."""

    def happens(driver: Driver, when: str) -> None:
        alone = f"alone-{when}"
        going = [
            pod(f"web-{when}").label(app="web").on(when),
            pod(alone).label(app=alone).pod_anti_affinity(b.HOSTNAME, f"app={alone}").on(f"{when}-2"),
        ]
        driver.put(*(node(name, "a").build() for name in (when, f"{when}-2")), *(p.build() for p in going))
        for place, leaving in enumerate(going):
            driver.put(pod(f"p-{when}-{place}").node_selector({b.HOSTNAME: when}).build())
            driver.attempt()
            driver.put(leaving.terminating().build())
            driver.commit()
            driver.settle()
        spread = pod(f"s-{when}").label(app="web").node_selector({b.HOSTNAME: when})
        driver.put(spread.spread(b.ZONE, selector="app=web").build(), going[0].label(new="yes").build())
        driver.attempt()
        driver.put(going[0].terminating().build())
        driver.commit()
        driver.advance(seconds=5)

    return twice(STAYING_TAKES_NOTHING, happens)


def failures_stand() -> Driver:
    """Both volumes of a pod are refused, the second as the refusal of the first is being written; three times."""

    def happens(driver: Driver, when: str) -> None:
        claims = [storage.claim(f"{when}-{i}") for i in range(2)]
        driver.put(storage.storage_class(), node(when, "a").label({"of": when}).build(), *claims)
        wanted = pod(when).node_selector({"of": when})
        driver.put(wanted.pvc(f"{when}-0").pvc(f"{when}-1").build())
        for _ in range(3):
            driver.settle()
            driver.put(claims[0])
            driver.attempt()
            driver.put(claims[1])
            driver.commit()
            driver.advance(seconds=0.5)
        driver.advance(seconds=30)

    return twice(FAILURES_STAND, happens)


def leaving_hurts_later() -> Driver:
    """Three pods that spread are in flight, and the second is deleted: the third had counted on it, the first had not."""

    def happens(driver: Driver, when: str) -> None:
        driver.put(*(node(f"{when}-{zone}", zone).label(of=when).build() for zone in "ab"))
        pods = [
            pod(f"{when}-{i}", "1")
            .label(app=when)
            .node_selector({"of": when})
            .spread(b.ZONE, selector=f"app={when}")
            .build()
            for i in range(3)
        ]
        driver.put(*pods)
        for _ in pods:
            driver.attempt()
        driver.delete(driver.pod(f"{when}-1"))
        driver.commit()
        driver.settle()

    return twice(LEAVING_HURTS_LATER, happens)


def bindings_need_nodes() -> Driver:
    """Two pods have their devices, of nodes that are deleted: one before the rest of its attempt, one when that is on its way."""

    def happens(driver: Driver, when: str) -> None:
        nodes = [node(f"{when}-{i}", "a").label({"of": f"{when}-{i}"}).build() for i in range(2)]
        driver.put(devices.device_class(), *nodes)
        for i, place in enumerate(nodes):
            name = place.metadata.name
            driver.put(
                devices.resource_slice(name, ["gpu"], node=name), devices.claim(name, devices.request())
            )
            driver.put(pod(name).node_selector({"of": name}).claim("gpu", claim=name).build())
            driver.attempt()
            driver.commit()
            if i:
                driver.attempt()
            driver.delete(place)
            driver.commit()
            driver.settle()
        driver.advance(seconds=5)

    return twice(BINDINGS_NEED_NODES, happens)


def groups_say_again() -> Driver:
    """A gang that does not fit is put anew without its condition, and does not fit again."""

    def happens(driver: Driver, when: str) -> None:
        driver.put(node(when, "a").build(), b.pod_group(when, min_count=2))
        driver.put(*(pod(f"{when}-{i}").group(when).request(cpu="100").build() for i in range(2)))
        driver.settle()
        driver.put(b.pod_group(when, min_count=2))
        driver.advance(seconds=301)
        driver.settle()

    return twice(GROUPS_SAY_AGAIN, happens)


def promised_volumes_count() -> Driver:
    """A node attaches one more volume, and room is being made on it for a pod with one; then another pod with a volume comes."""

    def happens(driver: Driver, when: str) -> None:
        there = {b.HOSTNAME: when}
        driver.put(node(when, "a", cpu="1").build(), storage.csi_node(when, {storage.PROVISIONER: 1}))
        for name in (f"{when}-mine", f"{when}-other"):
            claim = storage.claim(name, volume=name)
            driver.put(claim, storage.volume(name, bound=claim))
        driver.put(pod(f"{when}-low").request(cpu="1").node_selector(there).build())
        driver.settle()
        vip = pod(f"{when}-vip").request(cpu="1").priority(10).node_selector(there)
        driver.put(vip.pvc(f"{when}-mine").build())
        driver.settle()
        driver.put(pod(f"{when}-late").request(cpu="0").node_selector(there).pvc(f"{when}-other").build())
        driver.settle()
        driver.delete(pod(f"{when}-low").build())
        driver.advance(seconds=20)
        for name in ("vip", "late"):
            driver.delete(pod(f"{when}-{name}").build())

    return twice(PROMISED_VOLUMES_COUNT, happens)


def answers_are_awaited() -> Driver:
    """A pod has its device, which is not ready, and gets so later."""

    def happens(driver: Driver, when: str) -> None:
        place = {"driver": devices.DRIVER, "pool": when, "device": "gpu"}
        had = devices.allocated("gpu", pool=when, conditions=["Attached"])
        had["reservedFor"] = [{"resource": "pods", "name": when, "uid": when}]
        ready = {"devices": [{**place, "conditions": [{"type": "Attached", "status": "True"}]}]}
        driver.put(node(when, "a").label(of=when).build(), devices.claim(when, status=had))
        driver.put(pod(when).uid(when).node_selector({"of": when}).claim("gpu", claim=when).build())
        driver.settle()
        driver.put(devices.claim(when, status={**had, **ready}))
        driver.settle()

    return twice(ANSWERS_ARE_AWAITED, happens)


def bound_as_they_are() -> Driver:
    """A pod that keeps another away gets other labels while it waits for its volume."""

    def happens(driver: Driver, when: str) -> None:
        there = {b.HOSTNAME: when}
        driver.put(storage.storage_class(), node(when, "a").build(), storage.claim(when))
        driver.put(pod(f"{when}-first").label(app=when).node_selector(there).pvc(when).build())
        driver.settle()
        second = pod(f"{when}-second").node_selector(there)
        driver.put(second.pod_anti_affinity(b.HOSTNAME, f"app={when}").build())
        driver.settle()
        first = driver.pod(f"{when}-first")
        driver.put(replace(first, metadata=replace(first.metadata, labels={"app": "another"})))
        driver.settle()
        claim = driver.core.objects[f"PersistentVolumeClaim/default/{when}"]
        assert isinstance(claim, PersistentVolumeClaim)
        driver.put(*provided(claim, storage.storage_class()))
        driver.settle()

    return twice(BOUND_AS_THEY_ARE, happens)


def members_are_told_apart() -> Driver:
    """A gang's members have devices that are not ready, each on a node of its own."""

    def happens(driver: Driver, when: str) -> None:
        names = [f"{when}-{i}" for i in range(2)]
        for name in names:
            had = devices.allocated("gpu", pool=name, node=name, conditions=["Attached"])
            driver.put(node(name, "a").build(), devices.claim(name, status=had))
        driver.put(b.pod_group(when, min_count=2))
        driver.put(*(pod(name).uid(name).group(when).claim("gpu", claim=name).build() for name in names))
        driver.settle()

    return twice(MEMBERS_ARE_TOLD_APART, happens, featureGates={"TopologyAwareWorkloadScheduling": True})


def quorums_last() -> Driver:
    """A gang waits for its volumes until it is taken back, and one more member is tried while that is on its way."""

    def happens(driver: Driver, when: str) -> None:
        names = [f"{when}-{i}" for i in range(3)]
        driver.put(storage.storage_class(), node(when, "a").build(), b.pod_group(when, min_count=2))
        driver.put(*map(storage.claim, names))
        *first, late = (pod(name).group(when).pvc(name).build() for name in names)
        driver.put(*first)
        driver.settle()
        driver.now += 601 * NANOS
        driver.attempt()
        driver.put(late)
        driver.attempt()
        driver.commit()
        driver.settle()
        for name in names:
            driver.delete(driver.pod(name))

    return twice(QUORUMS_LAST, happens, featureGates={"TopologyAwareWorkloadScheduling": True})


def less_attached_wakes() -> Driver:
    """A node attaches one volume; the claim of the pod that has it goes, and another one's volume."""

    def happens(driver: Driver, when: str) -> None:
        for name in (f"{when}-claim", f"{when}-volume"):
            there = {b.HOSTNAME: name}
            driver.put(node(name, "a").build(), storage.csi_node(name, {storage.PROVISIONER: 1}))
            for of in (name, f"{name}-late"):
                claim = storage.claim(of, volume=of)
                driver.put(claim, storage.volume(of, bound=claim))
            driver.put(pod(name).node_selector(there).pvc(name).build())
            driver.settle()
            driver.put(pod(f"{name}-late").node_selector(there).pvc(f"{name}-late").build())
            driver.settle()
        driver.delete(storage.claim(f"{when}-claim"))
        driver.delete(storage.volume(f"{when}-volume"))
        driver.advance(seconds=20)
        # Who was woken is before it.
        driver.put(pod(f"{when}-next").build())
        driver.settle()

    return twice(LESS_ATTACHED_WAKES, happens)


def obstacles_gone_wake() -> Driver:
    """The node goes whose pod has a claim for itself; a claim gets other devices, and a slice goes where all are asked for."""

    def happens(driver: Driver, when: str) -> None:
        for name in (when, f"{when}-gone", f"{when}-one", f"{when}-all"):
            driver.put(node(name, "a").build())
        only = storage.claim(when, volume=when, modes=["ReadWriteOncePod"])
        driver.put(only, storage.volume(when, bound=only), devices.device_class())
        driver.put(pod(f"{when}-holder").pvc(when).on(f"{when}-gone").build())
        mounts = pod(f"{when}-mounts").pvc(when).node_selector({b.HOSTNAME: when}).build()

        one, second = f"{when}-one", f"{when}-second"
        driver.put(devices.resource_slice(one, ["g0"], node=one))
        driver.put(devices.claim(second, status=devices.allocated("g0", pool=one)))

        every, more = f"{when}-all", f"{when}-more"
        driver.put(devices.resource_slice(every, ["g0"], node=every))
        driver.put(devices.resource_slice(more, ["g0"], node=every, pool=more))
        driver.put(devices.claim(more, status=devices.allocated("g0", pool=more)))
        driver.put(devices.claim(one), devices.claim(every, devices.request(allocationMode="All")))
        waits = (
            pod(f"{n}-waits").claim(n, claim=n).node_selector({b.HOSTNAME: n}).build() for n in (one, every)
        )
        driver.put(mounts, *waits)
        driver.settle()

        driver.delete(node(f"{when}-gone", "a").build())
        driver.put(devices.claim(second, status=devices.allocated("g0", pool="elsewhere")))
        driver.delete(devices.resource_slice(more, ["g0"], node=every, pool=more))
        driver.advance(seconds=20)
        # Who was woken is before it.
        driver.put(pod(f"{when}-next").build())
        driver.settle()

    return twice(OBSTACLES_GONE_WAKE, happens)


def loss_ends_waits() -> Driver:
    """A gang has its volumes and is bound; a repair drops all from the second member's binding on."""

    def happens(driver: Driver, when: str) -> None:
        names = [f"{when}-{i}" for i in range(2)]
        driver.put(storage.storage_class(), node(when, "a").build(), b.pod_group(when, min_count=2))
        driver.put(*map(storage.claim, names))
        driver.put(*(pod(name).group(when).pvc(name).build() for name in names))
        driver.settle()
        for name in names:
            claim = driver.core.objects[f"PersistentVolumeClaim/default/{name}"]
            assert isinstance(claim, PersistentVolumeClaim)
            driver.put(*provided(claim, storage.storage_class()))
        driver.settle()
        lose(driver, from_=max(record.seq for record in driver.records if record.kind == "Scheduled"))
        driver.settle()
        driver.advance(seconds=601)

    return twice(
        LOSS_ENDS_WAITS,
        happens,
        beside=(LOSS_ENDS_ATTEMPTS,),
        featureGates={"TopologyAwareWorkloadScheduling": True},
    )


STORIES: dict[str, Callable[[], Driver]] = {
    "spread": spread,
    "preemption": preemption,
    "interrupted": interrupted,
    "gangs": gangs,
    "random-1": lambda: random_history(1, steps=150),
    "random-2": lambda: random_history(2, steps=150),
    "guarded-starting-pods": guarded_starting_pods,
    "own-levels-wake": own_levels_wake,
    "generators-after-pre-filter": generators_after_pre_filter,
    "one-image-size": one_image_size,
    "ties-follow-pods": ties_follow_pods,
    "device-placements": device_placements,
    "selectors-pause-nobody": selectors_pause_nobody,
    "nominated-rejectors": nominated_rejectors,
    "loss-ends-attempts": loss_ends_attempts,
    "searches-of-their-own": searches_of_their_own,
    "nodes-wake-for-volumes": nodes_wake_for_volumes,
    "group-errors-wait": group_errors_wait,
    "promises-stay": promises_stay,
    "plans-need-devices": plans_need_devices,
    "staying-takes-nothing": staying_takes_nothing,
    "failures-stand": failures_stand,
    "leaving-hurts-later": leaving_hurts_later,
    "bindings-need-nodes": bindings_need_nodes,
    "groups-say-again": groups_say_again,
    "promised-volumes-count": promised_volumes_count,
    "answers-are-awaited": answers_are_awaited,
    "bound-as-they-are": bound_as_they_are,
    "members-are-told-apart": members_are_told_apart,
    "quorums-last": quorums_last,
    "less-attached-wakes": less_attached_wakes,
    "obstacles-gone-wake": obstacles_gone_wake,
    "loss-ends-waits": loss_ends_waits,
}


async def exported(driver: Driver) -> bytes:
    """The log as JSON lines, which say to a reader of a diff what changed."""
    lines: list[bytes] = []
    with tempfile.TemporaryDirectory() as folder:
        await write_log(Path(folder) / "log.db", driver.records)
        async with open_reader(Path(folder) / "log.db") as log:
            await export_log(log, lines.append)
    return b"".join(lines)


def main(reason: str, again: Sequence[str] = ()) -> None:
    """Write the logs that are missing, and those to be made again if they changed, and note why.

    The others stay: it is what they are for that they may have become different and must still verify.
    """
    notes = HERE / "README.md"
    text = notes.read_text()
    for name, story in STORIES.items():
        path = HERE / f"{name}.jsonl"
        if path.exists() and name not in again:
            continue
        made = asyncio.run(exported(story()))
        if path.exists() and path.read_bytes() == made:
            continue
        path.write_bytes(made)
        digest = hashlib.sha256(made).hexdigest()
        text += f"| {name} | {datetime.now(UTC):%Y-%m-%d} | {digest} | {reason} |\n"
        print(f"{path.name}: {len(made.splitlines())} lines")
    notes.write_text(text)


if __name__ == "__main__":
    if len(sys.argv) < 2 or not sys.argv[1].strip() or not STORIES.keys() >= set(sys.argv[2:]):
        sys.exit(f'say why: python -m tests.golden.make "the reason" [{"|".join(STORIES)}]…')
    main(sys.argv[1], sys.argv[2:])
