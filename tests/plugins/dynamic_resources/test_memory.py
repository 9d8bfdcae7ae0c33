"""What is remembered of a search changes no answer, and not the step at which a search is given up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.objects import AllocationResult
from tidelog.plugins.dynamic_resources.allocated import Allocated
from tidelog.plugins.dynamic_resources.allocator import Allocator, Memory, SearchGivenUp
from tidelog.plugins.dynamic_resources.inventory import Inventory
from tidelog.testing import builders as b
from tidelog.testing import devices as d

NODES = [b.node(f"n{i}").build() for i in range(2)]
SLICES = [d.resource_slice(f"s{i}", ["g0", "g1", "g2"], node=f"n{i}") for i in range(2)]
CLASSES = {"gpu": d.device_class("gpu", 'device.driver.startsWith("gpu")')}

Answer = tuple[AllocationResult, ...] | str | None


def asked(
    inventory: Inventory, allocated: Allocated, memory: Memory | None, count: int, budget: int
) -> list[Answer]:
    claims = [d.claim("c", d.request(count=count))]
    known = None if memory is None else memory.of(0, allocated)
    allocator = Allocator(inventory, allocated, CLASSES.get, claims, memory=known)
    allocator.steps_left = budget
    found: list[Answer] = []
    for node in NODES:
        try:
            found.append(allocator.allocate(node))
        except SearchGivenUp as limit:
            found.append(str(limit))
    return found


STEP = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(1, 3), st.integers(0, 40))


@given(st.lists(STEP, min_size=1, max_size=8))
def test_remembered_answers_are_those_of_a_new_search(steps: list[tuple[int, int, int, int]]) -> None:
    """Devices are taken and given back, and claims of several kinds asked for, with little and with enough to spend."""
    inventory, allocated, memory = Inventory(SLICES), Allocated(), Memory()
    held: dict[tuple[int, int], object] = {}
    for node, device, count, budget in steps:
        claim = d.claim("x", status=d.allocated(f"g{device}", pool=f"n{node}"))
        if held.pop((node, device), None) is None:
            held[node, device] = claim
            allocated.add(claim)
        else:
            allocated.remove(claim)

        warm = asked(inventory, allocated, memory, count, budget)
        assert warm == asked(Inventory(SLICES), allocated, None, count, budget)
