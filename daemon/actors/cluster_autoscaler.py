"""The cluster autoscaler: buys nodes for pods that find no place, and says so in their conditions (KEP-3990).

    pod rejected ──► scan: would a node of some group help?
                       ├─ yes, and there are instances ──► ordered ──► NodeProvisioningInProgress True ──(delay)──► node
                       ├─ yes, but the order is refused ──► the group is passed over for a while; the next scan tries others
                       └─ no group that is left would ───► NodeProvisioningInProgress False: the pod may fall back

A scan comes at whole multiples of its period and tries the pods on the groups' templates with the scheduler's own filters
(`provisioning_simulation`), constraints taken as they are written. When the time of a refused group is over it is tried again, and who
gets a node after all is told True. Nodes are never removed.

One thing the proposal leaves open: a pod that was told False and has fallen back may still need a node, any node. It gets one if
a group has it, and its condition stays False: True would make its constraint hard again, and the node useless.

Orders under way are not objects. After a restart they are read from the conditions of the pods that wait for them; what was ordered for
nobody (up to a group's `min`) is ordered anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.objects import Condition, Node, Pod, pod_condition
from tidelog.api.pod_status import POD_SCHEDULED, UNSCHEDULABLE
from tidelog.api.times import NANOS, format_time, parse_time
from tidelog.api.validation.rules import validate
from tidelog.configuration.configuration import SchedulerConfiguration, default_configuration
from tidelog.daemon.actors.node_groups import NODE_GROUP, NodeGroup, group_errors, node_name
from tidelog.daemon.actors.protocol import NOTHING, Deeds, Errand, Objects, put
from tidelog.daemon.actors.provisioning_simulation import LISTED, Simulation
from tidelog.eventlog.records import (
    Body,
    ConfigurationLoaded,
    Draft,
    ObjectDeleted,
    ObjectPut,
    PodConditionSet,
    Record,
    Unschedulable,
)
from tidelog.framework.told import NODE_PROVISIONING_IN_PROGRESS
from tidelog.plugins.registry import Registry

SCAN = "scan"
DELIVER = "deliver"

ORDERED = "NodeOrdered"
OUT_OF_STOCK = "OutOfStock"
AT_MAXIMUM = "NodeGroupsAtMaximum"
NO_GROUP = "NoNodeGroupHelps"
_WORDS = {
    OUT_OF_STOCK: "there are no instances in the node groups that would help",
    AT_MAXIMUM: "the node groups that would help are at their maximum",
    NO_GROUP: "no node group would help",
}
_MESSAGE = re.compile(r"node (\S+) of group (\S+) in zone (\S+) is expected at (\S+)")


class ClusterAutoscalerSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Its node groups and times."""

    node_groups: tuple[NodeGroup, ...] = ()
    """Tried in this order."""
    scan_seconds: float = 10.0
    stockout_backoff_seconds: float = 300.0
    """For so long a group is passed over in a zone in which it refused an order."""
    stopped: bool = False
    """It does nothing: for showing what happens to pods then."""

    def errors(self, path: str) -> Iterator[FieldError]:
        """Every rule that is broken."""
        times = {"scanSeconds": self.scan_seconds, "stockoutBackoffSeconds": self.stockout_backoff_seconds}
        for field, value in times.items():
            if not 1 <= value <= 86400:
                rule = "must be from 1 to 86400"
                yield FieldError(path=f"{path}.{field}", kind="Invalid", value=value, rule=rule)
        yield from group_errors(self.node_groups, f"{path}.nodeGroups")


class NodeOrder(NamedTuple):
    """A node that is on its way."""

    name: str
    group: str
    zone: str
    due: int


class Option(NamedTuple):
    """Where a node could come from."""

    group: NodeGroup
    zone: str


class ClusterAutoscaler:
    """Implements `tidelog.daemon.actors.protocol.Actor` and `Configured`."""

    name = "cluster-autoscaler"
    Settings = ClusterAutoscalerSettings

    def __init__(
        self, settings: ClusterAutoscalerSettings | None = None, registry: Registry | None = None
    ) -> None:
        self._settings = settings or ClusterAutoscalerSettings()
        self._registry = registry or Registry()
        self._groups = {group.name: group for group in self._settings.node_groups}
        self._configuration: SchedulerConfiguration | None = None
        """The one in force; None: there is none yet, and the default one is taken."""
        self._orders: dict[str, NodeOrder] = {}
        """By the node's name."""
        self._refused_until: dict[tuple[str, str], int] = {}
        """(group, zone) → until when it is passed over."""
        self.is_stopped = self._settings.stopped

    def stop(self) -> None:
        """No scan from now on. What was ordered still comes: the machines do not know that the autoscaler is gone."""
        self.is_stopped = True

    def start(self) -> None:
        """Scans are made again, from the next rejection of a pod on."""
        self.is_stopped = False

    # --- the actor's part -----------------------------------------------------------------------------------------------

    def configured(self, configuration: SchedulerConfiguration) -> None:
        """Pods are tried with these profiles and gates from now on."""
        self._configuration = configuration

    def begin(self, objects: Objects, seq: int, at: int) -> Sequence[Errand]:
        """Forget all but the settings; find the orders under way in the pods' conditions."""
        self._refused_until.clear()
        self._orders.clear()
        for pod in _pods(objects):
            order = self._order_of(pod)
            if order is not None and objects.get(f"Node//{order.name}") is None:
                self._orders[order.name] = order
        deliveries = [Errand(order.due, DELIVER, name, seq) for name, order in self._orders.items()]
        return [*deliveries, self._next_scan(at, seq)]

    def react(self, record: Record, body: Body, objects: Objects) -> Sequence[Errand]:
        """A pod was rejected, a node is gone that a group may replace, or other rules apply: look around at the next scan."""
        node_is_gone = isinstance(body, ObjectDeleted) and record.key.startswith("Node/")
        if isinstance(body, ObjectPut):
            self._orders.pop(record.key.removeprefix("Node//"), None)
        if node_is_gone or isinstance(body, Unschedulable | ConfigurationLoaded):
            return [self._next_scan(record.at, record.seq)]
        return ()

    def run(self, errand: Errand, objects: Objects, at: int) -> Deeds:
        for name in [name for name in self._orders if objects.get(f"Node//{name}") is not None]:
            del self._orders[name]
        if errand.what == DELIVER:
            return self._deliver(errand, objects, at)
        if self.is_stopped or not self._groups:
            return NOTHING
        return _Scan(self, objects, at, errand.cause).run()

    def _next_scan(self, at: int, cause: int) -> Errand:
        """At the next whole multiple of the period: who asks more than once, or later, does not postpone it."""
        period = round(self._settings.scan_seconds * NANOS)
        return Errand(-(-at // period) * period, SCAN, "", cause)

    def _deliver(self, errand: Errand, objects: Objects, at: int) -> Deeds:
        """The node comes, unless its zone has run out meanwhile. The order stands until the node is there."""
        order = self._orders.get(errand.key)
        group = None if order is None else self._groups.get(order.group)
        if order is None or group is None:
            return NOTHING
        again = self._next_scan(at + 1, errand.cause)
        if group.is_out_of_stock(order.zone, at):
            del self._orders[order.name]
            self.refuse(group, order.zone, at)
            return Deeds((), (again,))
        node = group.node(order.zone, order.name)
        return Deeds((put(node),), (again,))

    def _order_of(self, pod: Pod) -> NodeOrder | None:
        """The order that a pod waits for, by its condition; None for what no order of ours says, since anybody may set conditions."""
        condition = pod_condition(pod, NODE_PROVISIONING_IN_PROGRESS)
        if pod.spec.node_name or condition is None or condition.reason != ORDERED:
            return None
        found = _MESSAGE.fullmatch(condition.message)
        group = None if found is None else self._groups.get(found[2])
        if found is None or group is None:
            return None
        try:
            order = NodeOrder(found[1], group.name, found[3], parse_time(found[4]))
        except ValueError:
            return None
        return None if validate(group.node(order.zone, order.name), FeatureGates()) else order

    # --- what a scan asks -------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> ClusterAutoscalerSettings:
        """Its settings."""
        return self._settings

    def has_ordered(self, name: str) -> bool:
        """A node of this name is on its way."""
        return name in self._orders

    @property
    def orders(self) -> Sequence[NodeOrder]:
        """The nodes on their way, in the order of the orders."""
        return tuple(self._orders.values())

    def simulation(self, objects: Objects, pods: Iterable[Pod], at: int) -> Simulation:
        """The cluster with the nodes that are on their way."""
        if self._configuration is None:
            self._configuration = default_configuration(self._registry)
        nodes = [obj for obj in objects.of_kind("Node") if isinstance(obj, Node)]
        listed = [obj for kind in LISTED for obj in objects.of_kind(kind)]
        found = Simulation(self._configuration, self._registry, nodes, pods, listed, at)
        for order in self._orders.values():
            found.add(self._groups[order.group].node(order.zone, order.name))
        return found

    def is_refusing(self, option: Option, at: int) -> bool:
        """The group refused an order in the zone not long ago."""
        return self._refused_until.get((option.group.name, option.zone), 0) > at

    def refuse(self, group: NodeGroup, zone: str, at: int) -> int:
        """Pass the group over in the zone for a while; until when."""
        until = at + round(self._settings.stockout_backoff_seconds * NANOS)
        self._refused_until[group.name, zone] = until
        return until

    def next_retry(self, at: int) -> int | None:
        """When the next group is tried again that refused."""
        return min((until for until in self._refused_until.values() if until > at), default=None)

    def order(self, order: NodeOrder) -> None:
        """Remember a node that was ordered."""
        self._orders[order.name] = order

    def next_scan_after(self, at: int, cause: int) -> Errand:
        """The scan after the one that is being made."""
        return self._next_scan(at + 1, cause)


class _Scan:
    """One look at all pods that find no place."""

    def __init__(self, autoscaler: ClusterAutoscaler, objects: Objects, at: int, cause: int) -> None:
        self._autoscaler = autoscaler
        self._objects = objects
        self._at = at
        self._cause = cause
        self._pods = list(_pods(objects))
        self._simulation = autoscaler.simulation(objects, self._pods, at)
        self._drafts: list[Draft] = []
        self._errands: list[Errand] = []
        self._sizes = {group.name: self._size(group) for group in autoscaler.settings.node_groups}
        """Group → zone → nodes, those on their way included."""
        self._numbers: dict[tuple[str, str], int] = {}
        """(group, zone) → the number below which no name is free: no order goes away in a scan."""

    def run(self) -> Deeds:
        self._fill_up()
        waiting = sorted(filter(self._is_waiting, self._pods), key=lambda pod: -(pod.spec.priority or 0))
        for pod in waiting:
            self._help(pod)
        retry = self._autoscaler.next_retry(self._at)
        if waiting and retry is not None:
            # Its own errand: the next rejection must not put it off.
            self._errands.append(Errand(retry, SCAN, "retry", self._cause))
        return Deeds(self._drafts, self._errands)

    def _is_waiting(self, pod: Pod) -> bool:
        """Rejected, with nobody making room for it."""
        scheduled = pod_condition(pod, POD_SCHEDULED)
        return (
            not pod.spec.node_name
            and not pod.metadata.deletion_timestamp
            and not pod.status.nominated_node_name
            and scheduled is not None
            and (scheduled.status, scheduled.reason) == ("False", UNSCHEDULABLE)
            and self._simulation.knows(pod)
        )

    def _size(self, group: NodeGroup) -> dict[str, int]:
        sizes = dict.fromkeys(group.zones, 0)
        nodes = [obj for obj in self._objects.of_kind("Node") if isinstance(obj, Node)]
        own = [node for node in nodes if node.metadata.labels.get(NODE_GROUP) == group.name]
        zones = [node.metadata.labels.get("topology.kubernetes.io/zone", "") for node in own]
        zones += [order.zone for order in self._autoscaler.orders if order.group == group.name]
        for zone in zones:
            sizes[zone] = sizes.get(zone, 0) + 1
        return sizes

    def _fill_up(self) -> None:
        """Groups that are below their minimum."""
        for group in self._autoscaler.settings.node_groups:
            sizes = self._sizes[group.name]
            while sum(sizes.values()) < group.min:
                options = [o for o in self._options([group]) if not self._autoscaler.is_refusing(o, self._at)]
                if not options:
                    break
                option = options[0]
                if self._is_refused(option):
                    continue
                name = self._new_name(option)
                self._simulation.add(option.group.node(option.zone, name))
                self._order(option, name)

    # --- one pod ------------------------------------------------------------------------------------------------------------

    def _help(self, pod: Pod) -> None:
        simulation = self._simulation
        if simulation.place(pod, simulation.real):
            return  # The scheduler has not tried it again yet.
        coming = [order.name for order in self._autoscaler.orders]
        name = simulation.place(pod, coming)
        if name:
            self._promise(pod, name)
            return
        missing = NO_GROUP
        for option in self._options(self._autoscaler.settings.node_groups):
            name = self._try(pod, option)
            if not name:
                continue
            missing = self._hindrance(option, missing)
            if self._may_order(option):
                self._ordered_for(pod, option, name)
                return
            simulation.remove(name, pod)
        self._disappoint(pod, missing)

    def _ordered_for(self, pod: Pod, option: Option, name: str) -> None:
        """The node would help. If the order is refused, other groups are tried at the next scan."""
        if self._is_refused(option):
            self._simulation.remove(name, pod)
            self._errands.append(self._autoscaler.next_scan_after(self._at, self._cause))
            return
        self._order(option, name)
        self._promise(pod, name)

    def _try(self, pod: Pod, option: Option, *, as_it_stands: bool = False) -> str:
        """The name of a new node, with the pod on it in the simulation; empty, and no node, if it would not help."""
        name = self._new_name(option)
        self._simulation.add(option.group.node(option.zone, name))
        if self._simulation.place(pod, [name], as_it_stands=as_it_stands):
            return name
        self._simulation.remove(name)
        return ""

    def _disappoint(self, pod: Pod, reason: str) -> None:
        """No group that is left has a node for the pod. What has fallen back may be content with another one."""
        condition = pod_condition(pod, NODE_PROVISIONING_IN_PROGRESS)
        self._say(pod, "False", reason, _WORDS[reason])
        if condition is None or condition.status != "False":
            return
        simulation = self._simulation
        there = [*simulation.real, *(order.name for order in self._autoscaler.orders)]
        if simulation.place(pod, there, as_it_stands=True):
            return
        for option in self._options(self._autoscaler.settings.node_groups):
            if self._may_order(option):
                name = self._try(pod, option, as_it_stands=True)
                if name and not self._is_refused(option):
                    self._order(option, name)
                    return
                if name:
                    simulation.remove(name, pod)

    def _promise(self, pod: Pod, name: str) -> None:
        order = next(order for order in self._autoscaler.orders if order.name == name)
        expected = format_time(order.due)
        message = f"node {name} of group {order.group} in zone {order.zone} is expected at {expected}"
        self._say(pod, "True", ORDERED, message)

    def _say(self, pod: Pod, status: str, reason: str, message: str) -> None:
        """Set the pod's condition, if it says something else."""
        known = pod_condition(pod, NODE_PROVISIONING_IN_PROGRESS)
        if known is not None and (known.status, known.reason, known.message) == (status, reason, message):
            return
        condition = Condition(
            type=NODE_PROVISIONING_IN_PROGRESS, status=status, reason=reason, message=message
        )
        key = f"Pod/{pod.metadata.namespace}/{pod.metadata.name}"
        self._drafts.append(Draft(body=PodConditionSet(condition=condition), author="", key=key))

    # --- groups -------------------------------------------------------------------------------------------------------------

    def _options(self, groups: Iterable[NodeGroup]) -> list[Option]:
        """In the order of the groups; in a group, the zone with the fewest nodes first."""
        return [
            Option(group, zone)
            for group in groups
            for zone in sorted(group.zones, key=lambda zone, group=group: self._sizes[group.name][zone])  # type: ignore[misc]
        ]

    def _may_order(self, option: Option) -> bool:
        at_maximum = sum(self._sizes[option.group.name].values()) >= option.group.max
        return not at_maximum and not self._autoscaler.is_refusing(option, self._at)

    def _hindrance(self, option: Option, known: str) -> str:
        """Why a group that would help does not: instances may come back, so that counts more than a maximum."""
        if self._autoscaler.is_refusing(option, self._at):
            return OUT_OF_STOCK
        return known if known == OUT_OF_STOCK else AT_MAXIMUM

    def _is_refused(self, option: Option) -> bool:
        """Try to order; a refusal is remembered."""
        refused = option.group.is_out_of_stock(option.zone, self._at)
        if refused:
            self._autoscaler.refuse(option.group, option.zone, self._at)
        return refused

    def _order(self, option: Option, name: str) -> None:
        group, zone = option
        order = NodeOrder(name, group.name, zone, self._at + group.provisioning_nanos)
        self._autoscaler.order(order)
        self._sizes[group.name][zone] += 1
        self._errands.append(Errand(order.due, DELIVER, name, self._cause))

    def _new_name(self, option: Option) -> str:
        """The first one that is free."""
        place = option.group.name, option.zone
        number = self._numbers.get(place, 1)
        while self._is_taken(name := node_name(*place, number)):
            number += 1
        self._numbers[place] = number
        return name

    def _is_taken(self, name: str) -> bool:
        return self._autoscaler.has_ordered(name) or self._objects.get(f"Node//{name}") is not None


def _pods(objects: Objects) -> Iterator[Pod]:
    for obj in objects.of_kind("Pod"):
        if isinstance(obj, Pod):
            yield obj
