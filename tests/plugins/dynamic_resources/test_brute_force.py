"""The allocator against one that tries everything: the same devices, in the same order, on small worlds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.objects import ResourceClaim
from tidelog.plugins.dynamic_resources import search
from tidelog.plugins.dynamic_resources.allocated import Allocated
from tidelog.plugins.dynamic_resources.allocator import Allocator
from tidelog.plugins.dynamic_resources.inventory import Inventory
from tidelog.testing import builders as b
from tidelog.testing import devices as d

CLASSES = {
    "gpu": d.device_class("gpu"),
    "big": d.device_class("big", f'device.attributes["{d.DRIVER}"].size == 2'),
}
NODE = b.node("n1").build()


@st.composite
def world_devices(draw: st.DrawFn) -> list[dict[str, Any]]:
    devices = []
    for index in range(draw(st.integers(1, 5))):
        fields: dict[str, Any] = {"attributes": {"size": draw(st.integers(1, 2))}}
        if draw(st.booleans()):
            fields["attributes"]["rack"] = draw(st.sampled_from("ab"))
        if draw(st.integers(0, 3)) == 0:
            fields["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
        if draw(st.integers(0, 2)) == 0:
            fields["consumesCounters"] = [
                {"counterSet": "set", "counters": {"memory": {"value": str(draw(st.integers(1, 3)))}}}
            ]
        if draw(st.integers(0, 3)) == 0:
            fields["allowMultipleAllocations"] = True
            fields["capacity"] = {
                "slots": {"value": str(draw(st.integers(1, 3))), "requestPolicy": {"default": "1"}}
            }
        devices.append(d.device(f"d{index}", **fields))
    return devices


EXACT = st.builds(
    lambda device_class, count, tolerates: d.exact(
        device_class,
        count=count,
        tolerations=[{"key": "broken", "operator": "Exists"}] if tolerates else [],
    ),
    st.sampled_from(("gpu", "gpu", "big")),
    st.integers(0, 3),
    st.booleans(),
)


@st.composite
def claims(draw: st.DrawFn) -> list[ResourceClaim]:
    found = []
    for index in range(draw(st.integers(1, 2))):
        requests = []
        for number in range(draw(st.integers(1, 2))):
            alternatives = draw(st.lists(EXACT, min_size=1, max_size=2))
            if len(alternatives) == 1:
                requests.append({"name": f"r{number}", "exactly": alternatives[0]})
            else:
                named = [{"name": f"s{i}", **one} for i, one in enumerate(alternatives)]
                requests.append(d.first_available(f"r{number}", *named))
        constraints = draw(
            st.lists(
                st.sampled_from(
                    (
                        {"matchAttribute": f"{d.DRIVER}/rack"},
                        {"matchAttribute": f"{d.DRIVER}/size", "requests": ["r0"]},
                        {"distinctAttribute": f"{d.DRIVER}/rack"},
                    )
                ),
                max_size=1,
            )
        )
        found.append(d.claim(f"c{index}", *requests, constraints=constraints))
    return found


Choice = tuple[str, dict[str, Any], tuple[int, ...]]
"""The name of the request or alternative, what it asks for, and which devices it gets."""


def choices(request: Any, devices: Sequence[dict[str, Any]]) -> Iterator[Choice]:
    """Everything that a request might be given, in the order of preference."""
    options = (
        [(request["name"], request["exactly"])]
        if "exactly" in request
        else [(f"{request['name']}/{sub['name']}", sub) for sub in request["firstAvailable"]]
    )
    for name, wanted in options:
        fitting = [i for i, one in enumerate(devices) if fits(one, wanted)]
        for chosen in combinations(fitting, wanted["count"]):
            yield name, wanted, chosen


def fits(device: dict[str, Any], wanted: dict[str, Any]) -> bool:
    size = device["attributes"]["size"]["int"]
    matches = wanted["deviceClassName"] == "gpu" or size == 2
    return matches and (not device.get("taints") or bool(wanted["tolerations"]))


def is_allowed(
    chosen: Sequence[Sequence[Choice]],
    all_constraints: Sequence[Any],
    devices: Sequence[dict[str, Any]],
    taken: frozenset[int],
    memory: int,
) -> bool:
    """Whether a complete choice breaks no rule, looked at as a whole."""
    used = Counter(i for of_claim in chosen for _, _, got in of_claim for i in got)
    for index, count in used.items():
        device = devices[index]
        if device.get("allowMultipleAllocations"):
            if count > int(device["capacity"]["slots"]["value"]):
                return False
        elif count > 1 or index in taken:
            return False
    consuming = [i for i in range(len(devices)) if devices[i].get("consumesCounters")]
    newly = [
        i for i in consuming if i in used and not (devices[i].get("allowMultipleAllocations") and i in taken)
    ]
    if newly and consumed({*newly, *(taken & set(consuming))}, devices) > memory:
        return False
    return all(
        satisfied(constraint, of_claim, devices)
        for of_claim, constraints in zip(chosen, all_constraints, strict=True)
        for constraint in constraints
    )


def consumed(indices: set[int], devices: Sequence[dict[str, Any]]) -> int:
    return sum(int(devices[i]["consumesCounters"][0]["counters"]["memory"]["value"]) for i in indices)


def satisfied(
    constraint: dict[str, Any], of_claim: Sequence[Choice], devices: Sequence[dict[str, Any]]
) -> bool:
    only = constraint.get("requests")
    concerned = [i for name, _, got in of_claim if not only or name.partition("/")[0] in only for i in got]
    attribute = (constraint.get("matchAttribute") or constraint["distinctAttribute"]).partition("/")[2]
    values = [str(devices[i]["attributes"].get(attribute)) for i in concerned]
    if "None" in values:
        return False
    return len(set(values)) <= 1 if "matchAttribute" in constraint else len(set(values)) == len(values)


def by_trying_everything(
    wanted: Sequence[ResourceClaim], devices: Sequence[dict[str, Any]], taken: frozenset[int], memory: int
) -> list[list[tuple[str, str]]] | None:
    """The first choice that is allowed: each claim's devices as request and name."""
    import msgspec

    plain = [msgspec.to_builtins(claim)["spec"]["devices"] for claim in wanted]
    for one in plain:
        for request in one["requests"]:
            for exact in (request.get("exactly"), *request.get("firstAvailable", ())):
                if exact is not None:
                    exact.setdefault("tolerations", [])
                    exact.setdefault("count", 1)
    per_claim = [[list(choices(request, devices)) for request in one["requests"]] for one in plain]
    flat = [options for requests in per_claim for options in requests]
    constraints = [one.get("constraints", []) for one in plain]
    for picked in product(*flat):
        rest = iter(picked)
        chosen = [[next(rest) for _ in requests] for requests in per_claim]
        if is_allowed(chosen, constraints, devices, taken, memory):
            return [[(name, devices[i]["name"]) for name, _, got in one for i in got] for one in chosen]
    return None


@given(world_devices(), claims(), st.frozensets(st.integers(0, 4)), st.integers(0, 5), st.booleans())
def test_the_first_choice_that_is_allowed_is_found(
    devices: list[dict[str, Any]],
    wanted: list[ResourceClaim],
    taken: frozenset[int],
    memory: int,
    is_eager: bool,
) -> None:
    taken = frozenset(i for i in taken if i < len(devices))
    own = d.resource_slice("s1", devices, node="n1", count=2)
    counters = d.resource_slice(
        "s2",
        node="n1",
        count=2,
        sharedCounters=[{"name": "set", "counters": {"memory": {"value": str(memory)}}}],
    )
    before = []
    for index in sorted(taken):
        status: Any = d.allocated(devices[index]["name"], pool="n1")
        if devices[index].get("allowMultipleAllocations"):
            # Somebody has a share that consumes nothing.
            status["allocation"]["devices"]["results"][0]["shareID"] = "x"
        before.append(d.claim(f"other-{index}", status=status))
    saved, search._EAGER_AFTER = search._EAGER_AFTER, -1 if is_eager else search._EAGER_AFTER
    try:
        allocator = Allocator(Inventory([own, counters]), Allocated(before), CLASSES.get, wanted)
        found = allocator.allocate(NODE)
    finally:
        search._EAGER_AFTER = saved

    expected = by_trying_everything(wanted, devices, taken, memory)
    told = None if found is None else [[(r.request, r.device) for r in one.devices.results] for one in found]
    assert told == expected


def test_what_cannot_be_is_given_up_long_before_everything_is_tried() -> None:
    """Twelve requests for one of twelve devices each, and a thirteenth that nothing fits: 12! ways to find that out."""
    devices = [d.device(f"d{i}", attributes={"size": 1}) for i in range(12)]
    requests = [d.request(f"r{i:02}") for i in range(12)] + [d.request("r12", "big")]
    allocator = Allocator(
        Inventory([d.resource_slice("s", devices, node="n1")]),
        Allocated(),
        CLASSES.get,
        [d.claim("c", *requests)],
    )

    assert allocator.allocate(NODE) is None


def test_search_that_takes_too_long_ends_with_its_reason() -> None:
    """Sixteen devices in pairs of one rack, and eight of one rack are wanted together with others: nothing prunes that."""
    devices = [
        d.device(f"d{i:02}", attributes={"size": 2, "rack": f"r{i % 9}", "row": i % 7}) for i in range(30)
    ]
    requests = [d.request(f"r{i}", count=4) for i in range(7)]
    constraints = [
        {"matchAttribute": f"{d.DRIVER}/row", "requests": ["r0"]},
        {"distinctAttribute": f"{d.DRIVER}/rack", "requests": ["r1", "r2"]},
        {"matchAttribute": f"{d.DRIVER}/row", "requests": ["r3"]},
        {"matchAttribute": f"{d.DRIVER}/row", "requests": ["r4"]},
        {"matchAttribute": f"{d.DRIVER}/rack", "requests": ["r6"]},
    ]
    allocator = Allocator(
        Inventory([d.resource_slice("s", devices, node="n1")]),
        Allocated(),
        CLASSES.get,
        [d.claim("c", *requests, constraints=constraints)],
    )

    try:
        found = allocator.allocate(NODE)
    except search.SearchGivenUp as limit:
        told = str(limit)
    else:
        told = "given up after" if found is None else "found"

    assert "given up after" in told
