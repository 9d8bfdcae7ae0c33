"""The pools of devices that a node can reach, as the slices tell.

A pool is all slices of a driver with one pool name and the highest generation that the node sees. It is *incomplete* while slices are missing
and *invalid* if they contradict each other; of neither a device is taken, but an invalid one is told apart in the rejection.

An `Inventory` is made anew when a slice or a taint rule changes and takes over what it knows of the slices that did not. Pools of a node are
made when they are first asked for, and kept until the node changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from tidelog.api.cel.errors import EvaluationError
from tidelog.api.cel.values import CelMap
from tidelog.api.device_selectors import value_of
from tidelog.api.objects import Device, DeviceTaintRule, Node, NodeSelector, ResourceSlice, Taint
from tidelog.api.quantity import parse_exact
from tidelog.api.selectors import SelectorError, node_selector_matcher
from tidelog.plugins.dynamic_resources.errors import AllocationError

DeviceKey = tuple[str, str, str]
"""Driver, pool, name."""
_encode = msgspec.msgpack.Encoder().encode
_ANSWERS_MAX = 64
"""Arbitrary: answers of this many different selectors are kept per device."""


class PoolDevice:
    """A device with what an allocation asks of it, computed once."""

    __slots__ = ("answers", "consumes", "device", "is_shareable", "key", "of", "taints", "value")

    def __init__(self, of: ResourceSlice, device: Device, rules: Sequence[DeviceTaintRule]) -> None:
        spec = of.spec
        self.key: DeviceKey = (spec.driver, spec.pool.name, device.name)
        self.device = device
        self.of = of
        """Its slice."""
        self.taints: tuple[Taint, ...] = (
            *device.taints,
            *(rule.spec.taint for rule in rules if _concerns(rule, self.key)),
        )
        self.is_shareable = bool(device.allow_multiple_allocations)
        self.consumes: tuple[tuple[tuple[str, str], Fraction], ...] = tuple(
            ((consumption.counter_set, name), Fraction(*parse_exact(counter.value)))
            for consumption in device.consumes_counters
            for name, counter in sorted(consumption.counters.items())
        )
        self.value: CelMap | EvaluationError | None = None
        """As selectors see it; made when the first asks."""
        self.answers: dict[str, tuple[bool | EvaluationError, int]] = {}
        """Selector → whether it matches, and what finding that out costs in steps of a search."""

    @property
    def name(self) -> str:
        """`driver/pool/device`, as in messages."""
        return "/".join(self.key)

    def as_selectors_see_it(self) -> CelMap | EvaluationError:
        """The variable `device`, or why there is none."""
        if self.value is None:
            try:
                self.value = value_of(self.key[0], self.device)
            except EvaluationError as problem:
                self.value = problem
        return self.value

    def keep(self, selector: str, answer: bool | EvaluationError, cost: int) -> None:
        """Remember what a selector said."""
        if len(self.answers) >= _ANSWERS_MAX:
            self.answers.clear()
        self.answers[selector] = (answer, cost)


def _concerns(rule: DeviceTaintRule, key: DeviceKey) -> bool:
    selector = rule.spec.device_selector
    if selector is None:
        return True
    wanted = (selector.driver, selector.pool, selector.device)
    return all(name is None or name == own for name, own in zip(wanted, key, strict=True))


class DevicePool:
    """The devices of a pool that a node can reach, and the counters that they share."""

    __slots__ = ("counters", "devices", "driver", "elsewhere", "is_incomplete", "is_invalid", "name", "waits")

    def __init__(self, driver: str, name: str) -> None:
        self.driver = driver
        self.name = name
        self.is_incomplete = False
        self.is_invalid = False
        self.devices: tuple[PoolDevice, ...] = ()
        """In the order in which they are tried: slices by name, devices as they are listed."""
        self.elsewhere: tuple[PoolDevice, ...] = ()
        """Of slices for other nodes; they use up counters too."""
        self.counters: dict[tuple[str, str], Fraction] = {}
        """(set, counter) → what there is of it."""
        self.waits = False
        """Some device is ready only when conditions are met; such pools are tried last."""

    @property
    def tells_nodes_apart(self) -> bool:
        """Some device says itself who reaches it."""
        return any(device.of.spec.per_device_node_selection for device in self.devices)

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"

    def restricted(self, keep: Callable[[PoolDevice], bool]) -> DevicePool:
        """As if the other devices were some other node's."""
        other = DevicePool(self.driver, self.name)
        other.is_incomplete, other.is_invalid = self.is_incomplete, self.is_invalid
        other.counters, other.waits = self.counters, self.waits
        other.devices = tuple(device for device in self.devices if keep(device))
        left = (device for device in self.devices if not keep(device))
        other.elsewhere = (*self.elsewhere, *left)
        return other


class _Slice:
    __slots__ = ("_devices", "_rules", "slice")

    def __init__(self, found: ResourceSlice, rules: Sequence[DeviceTaintRule]) -> None:
        self.slice = found
        self._rules = rules
        self._devices: tuple[PoolDevice, ...] | None = None

    @property
    def devices(self) -> tuple[PoolDevice, ...]:
        """Made when a node is first asked about that reaches the slice."""
        if self._devices is None:
            self._devices = tuple(
                PoolDevice(self.slice, device, self._rules) for device in self.slice.spec.devices
            )
        return self._devices


class _Reach:
    """Slices that the same nodes reach."""

    __slots__ = ("_is_reached", "_where", "slices")

    def __init__(self, first: ResourceSlice) -> None:
        self.slices: list[_Slice] = []
        spec, self._where = first.spec, f"slice {first.metadata.name}"
        self._is_reached: Callable[[Node], bool] | SelectorError
        if spec.all_nodes or spec.node_selector is None:
            self._is_reached = lambda node: _is_relevant(first, node)
            return
        try:
            self._is_reached = node_selector_matcher(spec.node_selector)
        except SelectorError as problem:
            self._is_reached = problem

    def is_of(self, node: Node) -> bool:
        """Whether the node reaches them. Raises AllocationError if their selector cannot be read."""
        if isinstance(self._is_reached, SelectorError):
            raise _unreadable(self._where, self._is_reached)
        return self._is_reached(node)


class Inventory:
    """All slices, by whom they concern."""

    def __init__(
        self,
        slices: Iterable[ResourceSlice] = (),
        rules: Sequence[DeviceTaintRule] = (),
        before: Inventory | None = None,
    ) -> None:
        self._rules = tuple(rules)
        known = before._made if before is not None and before._rules == self._rules else {}
        self._made: dict[str, _Slice] = {}
        self._of_node: dict[str, list[_Slice]] = {}
        self._shared: list[_Slice] = []
        self._reaches: dict[object, _Reach] = {}
        """The shared slices, by who reaches them."""
        self._pools_of_shared: dict[tuple[bool, ...], list[DevicePool]] = {}
        """Which of these a node reaches → their pools: one list for all such nodes."""
        self._of_pool: dict[tuple[str, str], list[_Slice]] = {}
        self._pools: dict[str, tuple[Node, list[DevicePool]]] = {}
        for found in sorted(slices, key=lambda s: s.metadata.name):
            made = known.get(found.metadata.name)
            if made is None or made.slice is not found:
                made = _Slice(found, self._rules)
            self._add(made)
        if before is not None and known:
            self._keep_pools(before)

    def _add(self, made: _Slice) -> None:
        spec = made.slice.spec
        self._made[made.slice.metadata.name] = made
        if spec.node_name:
            self._of_node.setdefault(spec.node_name, []).append(made)
        else:
            self._shared.append(made)
            if not _has_groups(made.slice):
                self._reaches.setdefault(_reach_key(made.slice), _Reach(made.slice)).slices.append(made)
        self._of_pool.setdefault((spec.driver, spec.pool.name), []).append(made)

    def _keep_pools(self, before: Inventory) -> None:
        """Pools of nodes that see the same slices, in pools that are the same."""
        if len(self._shared) != len(before._shared) or any(
            mine is not theirs for mine, theirs in zip(self._shared, before._shared, strict=True)
        ):
            return
        changed = {
            pool
            for pool in self._of_pool.keys() | before._of_pool.keys()
            if not _are_same(self._of_pool.get(pool), before._of_pool.get(pool))
        }
        for name, (node, pools) in before._pools.items():
            own = (*self._of_node.get(name, ()), *before._of_node.get(name, ()), *self._shared)
            if not any((made.slice.spec.driver, made.slice.spec.pool.name) in changed for made in own):
                self._pools[name] = (node, pools)
        if not any((made.slice.spec.driver, made.slice.spec.pool.name) in changed for made in self._shared):
            self._pools_of_shared = before._pools_of_shared

    def concerns(self, node: str) -> bool:
        """Whether some slice may be for this node."""
        return bool(self._shared) or node in self._of_node

    def pools(self, node: Node) -> list[DevicePool]:
        """The node's pools, in the order in which they are tried. Raises AllocationError."""
        name = node.metadata.name
        found = self._pools.get(name)
        if found is None or found[0] is not node:
            found = self._pools[name] = (node, self._gathered(node))
        return found[1]

    def _gathered(self, node: Node) -> list[DevicePool]:
        own = [m for m in self._of_node.get(node.metadata.name, ()) if _is_relevant(m.slice, node)]
        reached = tuple([reach.is_of(node) for reach in self._reaches.values()])
        shared = self._pools_of_shared.get(reached)
        if shared is None:
            shared = self._pools_of_shared[reached] = self._pools_from(self._slices_of(reached))
        if not own:
            return shared
        pools = self._pools_from(own)
        apart = {(pool.driver, pool.name) for pool in shared}.isdisjoint((p.driver, p.name) for p in pools)
        if not shared or (apart and len(pools) == len({_pool_of(made) for made in own})):
            return sorted((*pools, *shared), key=_order) if shared else pools
        return self._pools_from([*own, *self._slices_of(reached)])

    def _slices_of(self, reached: tuple[bool, ...]) -> list[_Slice]:
        of = zip(reached, self._reaches.values(), strict=True)
        return [made for is_reached, reach in of if is_reached for made in reach.slices]

    def _pools_from(self, slices: Sequence[_Slice]) -> list[DevicePool]:
        """The pools of these slices, in the order in which they are tried."""
        groups: dict[tuple[str, str], list[_Slice]] = {}
        for made in slices:
            spec = made.slice.spec
            group = groups.setdefault((spec.driver, spec.pool.name), [])
            if group and spec.pool.generation < group[0].slice.spec.pool.generation:
                continue
            if group and spec.pool.generation > group[0].slice.spec.pool.generation:
                group.clear()
            group.append(made)
        pools = [pool for key, group in groups.items() if (pool := self._pool(key, group)) is not None]
        return sorted(pools, key=_order)

    def _pool(self, key: tuple[str, str], group: list[_Slice]) -> DevicePool | None:
        """None if a newer generation is on its way."""
        pool = DevicePool(*key)
        group = sorted(group, key=lambda made: made.slice.metadata.name)
        first = group[0].slice.spec.pool
        elsewhere: list[_Slice] = []
        if len(group) != first.resource_slice_count:
            everywhere = self._of_pool[key]
            if any(made.slice.spec.pool.generation > first.generation for made in everywhere):
                return None
            same = [
                made
                for made in everywhere
                if made.slice.spec.pool.generation == first.generation and not _has_groups(made.slice)
            ]
            if len(same) != first.resource_slice_count:
                pool.is_incomplete = True
                return pool
            own = {made.slice.metadata.name for made in group}
            elsewhere = [made for made in same if made.slice.metadata.name not in own]
        _fill(pool, group, elsewhere)
        return pool


def _order(pool: DevicePool) -> tuple[bool, str, str]:
    return pool.waits, pool.driver, pool.name


def _pool_of(made: _Slice) -> tuple[str, str]:
    return made.slice.spec.driver, made.slice.spec.pool.name


def _reach_key(found: ResourceSlice) -> object:
    """Equal for slices that the same nodes reach."""
    spec = found.spec
    if spec.all_nodes:
        return "all"
    return ("own", found.metadata.name) if spec.node_selector is None else _encode(spec.node_selector)


def _fill(pool: DevicePool, group: list[_Slice], elsewhere: list[_Slice]) -> None:
    devices = [d for made in group if not made.slice.spec.shared_counters for d in made.devices]
    others = [d for made in elsewhere if not made.slice.spec.shared_counters for d in made.devices]
    sets: list[str] = []
    for made in (*group, *elsewhere):
        for counters in made.slice.spec.shared_counters:
            sets.append(counters.name)
            for name, counter in counters.counters.items():
                pool.counters[counters.name, name] = Fraction(*parse_exact(counter.value))
    pool.is_invalid = (
        len({device.key for device in devices}) < len(devices)
        or len(set(sets)) < len(sets)
        or not all(_consumes_known(device, sets, pool) for device in (*devices, *others))
    )
    if pool.is_invalid:
        pool.counters = {}
        return
    pool.devices, pool.elsewhere = tuple(devices), tuple(others)
    pool.waits = any(device.device.binding_conditions for device in devices)


def _consumes_known(device: PoolDevice, sets: list[str], pool: DevicePool) -> bool:
    known_sets = all(one.counter_set in sets for one in device.device.consumes_counters)
    return known_sets and all(counter in pool.counters for counter, _ in device.consumes)


def _are_same(mine: Any, theirs: Any) -> bool:
    if mine is None or theirs is None or len(mine) != len(theirs):
        return False
    return all(a is b for a, b in zip(mine, theirs, strict=True))


def _has_groups(found: ResourceSlice) -> bool:
    """Compatibility groups are a gate that is off: such slices are overlooked."""
    return any(one.compatibility_groups for device in found.spec.devices for one in device.consumes_counters)


def _is_relevant(found: ResourceSlice, node: Node) -> bool:
    if _has_groups(found):
        return False
    spec = found.spec
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        return reaches(
            node, spec.node_name, spec.all_nodes, spec.node_selector, f"slice {found.metadata.name}"
        )
    if not spec.per_device_node_selection:
        return False
    return any(reaches_device(node, device, found.metadata.name) for device in spec.devices)


def reaches_device(node: Node, device: Device, of: str) -> bool:
    """Whether a device that says so itself can be reached from the node. Raises AllocationError."""
    where = f"device {device.name} in slice {of}"
    return reaches(node, device.node_name, device.all_nodes, device.node_selector, where)


def reaches(
    node: Node, node_name: str | None, all_nodes: bool | None, selector: NodeSelector | None, where: str
) -> bool:
    """Whether the node is meant. Raises AllocationError if the selector cannot be read."""
    if node_name:
        return node.metadata.name == node_name
    if all_nodes or selector is None:
        return bool(all_nodes)
    try:
        return node_selector_matcher(selector)(node)
    except SelectorError as problem:
        raise _unreadable(where, problem) from None


def _unreadable(where: str, problem: SelectorError) -> AllocationError:
    return AllocationError(
        f"gather pool information: failed to perform node selection for {where}: failed to parse node selector: {problem}"
    )
