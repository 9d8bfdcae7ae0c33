"""Each advice of `why` is right: it is done, word for word, and the pod is placed.

A case is a cluster, a pod that fits nowhere, the sentence that `why` says, and the change that the sentence asks for. The pod must be pending before
and placed after, on the node that the sentence names where it names one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from tidelog.api.objects import Node, Object, Pod
from tidelog.replay.driver import Driver
from tidelog.replay.why import Why, why
from tidelog.testing import builders as b
from tidelog.testing import devices as d

GPU = "nvidia.com/gpu"
HOST = "kubernetes.io/hostname"
Change = Callable[[Driver], None]


class Case(NamedTuple):
    """One advice."""

    name: str
    objects: Sequence[Object]
    pod: Pod
    says: str
    """The whole advice."""
    change: Change
    on: str = ""
    """The node that the pod must be on afterwards; empty for any."""


def node(name: str, **capacity: str | int) -> b.NodeBuilder:
    return b.node(name).label({HOST: name}).capacity({"cpu": "4", "memory": "8Gi", "pods": 10, **capacity})


def pod(name: str = "p") -> b.PodBuilder:
    return b.pod(name).scheduler("default-scheduler")


def gpu(count: int, name: str = "p") -> b.PodBuilder:
    return pod(name).request({GPU: count})


def put(*objects: Object) -> Change:
    return lambda driver: driver.put(*objects)


def delete(*objects: Object) -> Change:
    def change(driver: Driver) -> None:
        for obj in objects:
            driver.delete(obj)

    return change


def gpu_node(name: str, count: int) -> b.NodeBuilder:
    return node(name).capacity({"cpu": "4", "memory": "8Gi", "pods": 10, GPU: count})


def with_gate_removed(name: str) -> Change:
    return put(pod(name).request(cpu="1").build())


HELD = pod("held").port(8080).on("n1").build()
DB = pod("db").label(app="db").request(cpu="4").on("n1").build()
WEB = pod("web").label(app="web").on("n1").build()
ZONED = [node(f"{zone}-1").label({b.ZONE: zone}) for zone in "ab"]
SPREAD = pod("p").label(app="s").request(cpu="1").spread(b.ZONE, max_skew=1, selector={"app": "s"})

CASES = [
    Case(
        "more of a resource",
        [node("n1").build(), node("n2", cpu="8").build(), pod("a").request(cpu="3").on("n1").build(), pod("c").request(cpu="6").on("n2").build()],
        pod().request(cpu="4").build(),
        "2 more cpu on n2, the node with the most room: it has 2 of 8 free, and the pod asks for 4",
        put(node("n2", cpu="10").build()),
        "n2",
    ),
    Case(
        "a larger node",
        [node("n1").build()],
        pod().request(cpu="6").build(),
        "a larger node: the pod asks for 6 cpu, and n1 has no more than 4 even when empty",
        put(node("n2", cpu="6").build()),
        "n2",
    ),
    Case(
        "a larger node with what few have",
        [node("n1").build(), node("g1").capacity({"cpu": "4", "pods": 10, "example.com/gpu": 2}).build()],
        pod().request({"example.com/gpu": 3}).build(),
        "a larger node: the pod asks for 3 example.com/gpu, and g1 has no more than 2 even when empty",
        put(node("g2").capacity({"cpu": "4", "pods": 10, "example.com/gpu": 3}).build()),
        "g2",
    ),
    Case(
        "two resources on one node",
        [node("n1").build(), node("n2").build(), pod("a").request(cpu="3").on("n1").build(), pod("c").request(memory="7Gi", cpu="3").on("n2").build()],
        pod().request(cpu="2", memory="4Gi").build(),
        "1 more cpu on n1, the node with the most room: it has 1 of 4 free, and the pod asks for 2",
        put(node("n1", cpu="5").build()),
        "n1",
    ),
    Case(
        "all of it on one node",
        [node("n1").build(), pod("a").request(cpu="3", memory="7Gi").on("n1").build()],
        pod().request(cpu="2", memory="4Gi").build(),
        "all of them on one node: n1 comes closest and lacks 1 cpu, 3Gi memory",
        put(node("n1", cpu="5", memory="11Gi").build()),
        "n1",
    ),
    Case(
        "room for one more pod",
        [node("n1", pods=1).build(), WEB],
        pod().build(),
        "a node with room for one more pod: n1 holds 1 and may hold 1",
        delete(WEB),
        "n1",
    ),
    Case(
        "extended resource in use",
        [node("cpu-1").build(), gpu_node("gpu-1", 2).build(), gpu(2, "a").on("gpu-1").build()],
        gpu(2).build(),
        f"2 more {GPU} on gpu-1, the node with the most room: it has 0 of 2 free, and the pod asks for 2",
        delete(gpu(2, "a").on("gpu-1").build()),
        "gpu-1",
    ),
    Case(
        "extended resource that no node has",
        [node("cpu-1").build()],
        gpu(1).build(),
        f"a node with 1 {GPU}: no node has any",
        put(gpu_node("gpu-1", 1).build()),
        "gpu-1",
    ),
    Case(
        "extended resource of nodes that something else rejects",
        [node("cpu-1").build(), gpu_node("gpu-1", 2).taint("gpu", "yes").build()],
        gpu(1).build(),
        f"a node with 1 {GPU}: cpu-1 has none; gpu-1 would, and what is in the way there is TaintToleration",
        put(gpu_node("gpu-1", 2).build()),
        "gpu-1",
    ),
    Case(
        "a taint's removal",
        [node("n1").taint("dedicated", "batch").build()],
        pod().build(),
        "a toleration of dedicated=batch:NoSchedule, or its removal from n1",
        put(node("n1").build()),
    ),
    Case(
        "a toleration",
        [node("n1").taint("dedicated", "batch").build()],
        pod().build(),
        "a toleration of dedicated=batch:NoSchedule, or its removal from n1",
        put(pod().tolerate("dedicated", value="batch", effect="NoSchedule").build()),
    ),
    Case(
        "two taints of one node",
        [node("n1").taint("x", "1").taint("y", effect="NoExecute").build()],
        pod().build(),
        "a toleration of x=1:NoSchedule and y:NoExecute, or removal of all of them from n1",
        put(node("n1").build()),
    ),
    Case("cordon", [node("n1").cordon().build()], pod().build(), "uncordoning n1", put(node("n1").build()), "n1"),
    Case(
        "host port",
        [node("n1").build(), HELD],
        pod().port(8080).build(),
        "host port 8080/TCP is held on n1 by default/held",
        delete(HELD),
    ),
    Case(
        "gates",
        [node("n1").build()],
        pod().request(cpu="1").gate("quota").build(),
        "removing the scheduling gates quota",
        with_gate_removed("p"),
    ),
    Case(
        "a label that no node has",
        [node("n1").build()],
        pod().node_selector(disk="ssd").build(),
        "the label disk=ssd on a node: 1 of these 1 lack it; none has the label at all",
        put(node("n1").label(disk="ssd").build()),
    ),
    Case(
        "two labels of different nodes",
        [node("n1").label(disk="ssd").build(), node("n2").build()],
        pod().node_selector(disk="ssd", arch="arm").node_affinity("gen in (5)").build(),
        "all of it on one node: n1 comes closest and lacks arch=arm, gen in (5)",
        put(node("n1").label(disk="ssd", arch="arm", gen="5").build()),
        "n1",
    ),
    Case(
        "a node affinity",
        [node("n1").label(gen="4").build()],
        pod().node_affinity("gen in (5, 6)").build(),
        "a node with gen in (5, 6): 0 of these 1 have that",
        put(node("n1").label(gen="6").build()),
    ),
    Case(
        "a place in the smallest domain",
        [
            *(n.build() for n in ZONED),
            pod("s1").label(app="s").on("a-1").build(),
            pod("full").request(cpu="4").on("b-1").build(),
        ],
        SPREAD.build(),
        f"a place in {b.ZONE} b, which holds the minimum of 0 matching pods (a: 1, b: 0; maxSkew 1)",
        put(node("b-2").label({b.ZONE: "b"}).build()),
        "b-2",
    ),
    Case(
        "a topology label",
        [node("n1").build()],
        SPREAD.build(),
        f"the label {b.ZONE} on n1",
        put(node("n1").label({b.ZONE: "a"}).build()),
    ),
    Case(
        "room near other pods",
        [n.build() for n in ZONED] + [replace(DB, spec=replace(DB.spec, node_name="a-1"))],
        pod().request(cpu="1").pod_affinity(b.ZONE, {"app": "db"}).build(),
        f"room in {b.ZONE} a, where pods with app=db are",
        put(node("a-2").label({b.ZONE: "a"}).build()),
        "a-2",
    ),
    Case(
        "a pod to be near to",
        [n.build() for n in ZONED],
        pod().pod_affinity(b.ZONE, {"app": "db"}).build(),
        f"a pod with app=db on a node that has the label {b.ZONE}: there is none",
        put(pod("other").label(app="db").on("b-1").build()),
        "b-1",
    ),
    Case(
        "anti-affinity of its own",
        [node("n1").build(), WEB],
        pod().pod_anti_affinity(HOST, {"app": "web"}).build(),
        f"a {HOST} without pods with app=web: now there are default/web on n1",
        delete(WEB),
    ),
    Case(
        "anti-affinity of others",
        [node("n1").build(), pod("shy").pod_anti_affinity(HOST, {"app": "new"}).on("n1").build()],
        pod().label(app="new").build(),
        "these pods do not want it near them (their anti-affinity): default/shy on n1",
        delete(pod("shy").on("n1").build()),
    ),
    Case(
        "a node's name",
        [node("n1").build()],
        pod().node_affinity("metadata.name in (n7)").build(),
        "a node with metadata.name in (n7): 0 of these 1 have that",
        put(node("n7").build()),
        "n7",
    ),
]  # fmt: skip


def asked(driver: Driver) -> Why:
    return why(driver.records, Driver().core, "Pod/default/p")


GPUS = [d.device(f"g{i}", attributes={"model": "a100", "link": i % 2}) for i in range(4)]
LINK = f"{d.DRIVER}/link"


def gpus(name: str, *devices: dict[str, object], pool: str = "") -> Object:
    """The devices of a node; four, if none are given."""
    return d.resource_slice(pool or name, devices or GPUS, node=name)


def claiming(*claims: str) -> Pod:
    found = pod()
    for name in claims:
        found = found.claim(name, claim=name)
    return found.build()


def held(name: str, *devices: str, pool: str, by: str = "") -> Object:
    here = {"key": "metadata.name", "operator": "In", "values": [pool]}
    status = d.allocated(*devices, pool=pool)
    status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    if by:
        status["reservedFor"] = [{"resource": "pods", "name": by, "uid": f"uid-{by}"}]
    return d.claim(name, d.request(count=len(devices)), status=status)


TWO = [node("n1").build(), node("n2").build(), d.device_class(), gpus("n1"), gpus("n2", *GPUS[:2])]

CASES += [
    Case(
        "more devices than any node has",
        [*TWO, d.claim("c", d.request(count=5))],
        claiming("c"),
        "claim c, request r: 5 devices of class gpu on one node: none has more than 4, free or not",
        put(gpus("n2", *[d.device(f"g{i}") for i in range(5)])),
        "n2",
    ),
    Case(
        "devices that others have",
        [*TWO, held("other", "g0", "g1", pool="n1"), d.claim("c", d.request(count=3))],
        claiming("c"),
        "claim c, request r: 3 devices of class gpu: n1 comes closest, with 2 free of 4; the end of who has the others: claim default/other",
        delete(held("other", "g0", "g1", pool="n1")),
        "n1",
    ),
    Case(
        "devices with a taint",
        [
            node("n1").build(),
            d.device_class(),
            gpus("n1", d.device("g0", taints=[{"key": "broken", "value": "yes", "effect": "NoSchedule"}])),
            d.claim("c"),
        ],
        claiming("c"),
        "claim c, request r: a device of class gpu: n1 comes closest, with 0 free of 1; a toleration of broken=yes:NoSchedule by the request, or no such taint",
        put(gpus("n1", d.device("g0"))),
        "n1",
    ),
    Case(
        "a class that does not exist",
        [*TWO, d.claim("c", d.request("r", "tpu"))],
        claiming("c"),
        "claim c, request r: a device class tpu, which does not exist",
        put(d.device_class("tpu")),
    ),
    Case(
        "no device of the class",
        [
            *TWO,
            d.device_class("tpu", "device.driver == 'tpu.example.com'"),
            d.claim("c", d.request("r", "tpu")),
        ],
        claiming("c"),
        f"claim c, request r: a device of class tpu: none of these nodes has a device of the class (devices there are of {d.DRIVER})",
        put(d.resource_slice("tpus", ["t0"], node="n2", driver="tpu.example.com")),
        "n2",
    ),
    Case(
        "selectors of the request",
        [*TWO, d.claim("c", d.request("r", "gpu", f"device.attributes['{d.DRIVER}'].model == 'h100'"))],
        claiming("c"),
        "claim c, request r: a device of class gpu that the request's selectors match: n1 has 4 of the class, and none matches",
        put(gpus("n2", d.device("g9", attributes={"model": "h100"}))),
        "n2",
    ),
    Case(
        "a selector that fails about the first device",
        [
            node("n1").build(),
            d.device_class(),
            gpus("n1", d.device("g0"), d.device("g1", attributes={"model": "h100"})),
            d.claim("c", d.request("r", "gpu", f"device.attributes['{d.DRIVER}'].model == 'h100'")),
        ],
        claiming("c"),
        "a selector that asks for model only where there is one: has(….model) && …, or ….?model.orValue(…)",
        put(
            d.claim(
                "c", d.request("r", "gpu", f"device.attributes['{d.DRIVER}'].?model.orValue('') == 'h100'")
            )
        ),
        "n1",
    ),
    Case(
        "devices that have to agree",
        [*TWO, d.claim("c", d.request(count=3), constraints=[{"matchAttribute": LINK}])],
        claiming("c"),
        f"devices for all requests on one node, which have to agree in {LINK}: for each of them alone there are enough, but not together, "
        "or the counters and capacities that they share are used up",
        put(gpus("n2", *[d.device(f"g{i}", attributes={"link": 7}) for i in range(3)])),
        "n2",
    ),
    Case(
        "devices that are somewhere else already",
        [*TWO, node("n2").cordon().build(), held("c", "g0", pool="n2", by="x")],
        claiming("c"),
        f"claim c has its devices of {d.DRIVER}/n2 already, which nodes with metadata.name In (n2) reach: room there, or the end of who uses it (pods x)",
        put(node("n2").build()),
        "n2",
    ),
    Case(
        "slices that are missing",
        [
            node("n1").build(),
            d.device_class(),
            d.resource_slice("half", GPUS, node="n1", pool="n1", count=2),
            d.claim("c"),
        ],
        claiming("c"),
        f"the rest of pool n1 of driver {d.DRIVER}: slices of it are missing",
        put(d.resource_slice("other-half", ["g8"], node="n1", pool="n1", count=2)),
        "n1",
    ),
    Case(
        "a claim that nobody has made",
        TWO,
        claiming("c"),
        'such a claim: could not find ResourceClaim "default/c"',
        put(d.claim("c")),
    ),
    Case(
        "an extended resource that a class backs",
        [
            node("n1").build(),
            d.device_class("gpu", extendedResourceName="example.com/gpu"),
            gpus("n1", *GPUS[:1]),
        ],
        pod().request({"example.com/gpu": 2}).build(),
        "claim <extended-resources>, request container-0-request-0: 2 devices of class gpu on one node: none has more than 1, free or not",
        put(gpus("n1", *GPUS[:2])),
        "n1",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_doing_what_is_advised_places_the_pod(case: Case) -> None:
    driver = Driver()
    driver.start()
    driver.put(*case.objects, case.pod)
    driver.settle()
    assert "default/p" not in driver.placements()

    said = [text for help_ in asked(driver).help for text in help_.advice]

    assert case.says in said
    case.change(driver)
    driver.advance(400)
    assert driver.placements().get("default/p") == (case.on or driver.placements().get("default/p"))
    assert "default/p" in driver.placements()


def test_gated_pod_is_kept_out_by_its_gate_and_by_no_node() -> None:
    driver = Driver()
    driver.start()
    nodes: list[Node] = [node(f"n{i}").build() for i in range(3)] + [node("n9").cordon().build()]
    driver.put(*nodes, pod().gate("quota").build())
    driver.settle()

    found = asked(driver)

    gate, *others = found.help
    assert (gate.plugin, gate.nodes, gate.gate) == (
        "SchedulingGates",
        0,
        "waiting for scheduling gates: [quota]",
    )
    assert {help_.nodes for help_ in others} == {1}
    assert len(found.feasible) == 3
