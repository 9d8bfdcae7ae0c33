"""A plain node and a plain pod, as most tests need them."""

from __future__ import annotations

from tidelog.api.objects import Node, Pod
from tidelog.testing import builders as b

ZONE = "topology.kubernetes.io/zone"
SCHEDULER = "default-scheduler"


def node(name: str = "n1", cpu: str = "4", *, zone: str = "a", **labels: str) -> Node:
    """A node in a zone; further labels by name."""
    return b.node(name).label({ZONE: zone, **labels}).capacity(cpu=cpu).build()


def pod(name: str = "web", cpu: str = "1", **labels: str) -> Pod:
    """A pending pod of the default profile."""
    return b.pod(name).label(labels).request(cpu=cpu).scheduler(SCHEDULER).build()
