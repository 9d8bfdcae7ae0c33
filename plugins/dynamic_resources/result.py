"""Turns the result of a search into what is written to the claims."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from tidelog.api.objects import (
    AllocationResult,
    DeviceAllocation,
    DeviceAllocationConfiguration,
    DeviceResult,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from tidelog.plugins.dynamic_resources.errors import AllocationError
from tidelog.plugins.dynamic_resources.requests import PreparedClaim, Wanted
from tidelog.plugins.dynamic_resources.search import Search, Taken

FROM_CLASS, FROM_CLAIM = "FromClass", "FromClaim"
ShareName = Callable[[int, int], str]
"""Of the claim's and the result's index."""


def share_name(*about: object) -> str:
    """A UUID that follows from what it is about: the same in every replay."""
    digest = hashlib.sha1(
        "/".join(map(str, about)).encode("utf-8", "replace"), usedforsecurity=False
    ).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-a{digest[17:20]}-{digest[20:32]}"


def results(
    search: Search, claims: Sequence[PreparedClaim], node: str, name_share: ShareName
) -> tuple[AllocationResult, ...]:
    """An allocation for each claim."""
    return tuple(_allocation(search, index, claim, node, name_share) for index, claim in enumerate(claims))


def shares_named(found: Sequence[AllocationResult], name_share: ShareName) -> tuple[AllocationResult, ...]:
    """The same allocations for another pod or claim: what is shared has another name."""
    if not any(result.share_id for one in found for result in one.devices.results):
        return tuple(found)
    return tuple(
        replace(one, devices=replace(one.devices, results=tuple(_shared_by(one, index, name_share))))
        for index, one in enumerate(found)
    )


def _shared_by(one: AllocationResult, index: int, name_share: ShareName) -> Iterator[DeviceResult]:
    for position, result in enumerate(one.devices.results):
        shared = result.share_id is not None
        yield replace(result, share_id=name_share(index, position)) if shared else result


def _allocation(
    search: Search, index: int, claim: PreparedClaim, node: str, name_share: ShareName
) -> AllocationResult:
    chosen = tuple(
        request.alternatives[search.chosen.get((index, position), 0) if request.is_prioritized else 0]
        for position, request in enumerate(claim.requests)
    )
    taken = search.results[index]
    return AllocationResult(
        devices=DeviceAllocation(
            results=tuple(
                _result(one, name_share(index, position) if one.device.is_shareable else None)
                for position, one in enumerate(taken)
            ),
            config=_config(claim, chosen),
        ),
        node_selector=_node_selector(claim, taken, node),
    )


def _result(taken: Taken, share: str | None) -> DeviceResult:
    driver, pool, name = taken.device.key
    device = taken.device.device
    return DeviceResult(
        request=taken.wanted.name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=True if taken.wanted.has_admin_access else None,
        tolerations=taken.wanted.tolerations,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=share,
        consumed_capacity={each.name: each.text for each in taken.consumed},
    )


def _config(claim: PreparedClaim, chosen: Sequence[Wanted]) -> tuple[DeviceAllocationConfiguration, ...]:
    """Those of the classes, in the requests' order, then the claim's that concern a request; one for all requests lists none."""
    found: list[DeviceAllocationConfiguration] = []
    of_class: dict[str, list[str]] = {}
    for wanted in chosen:
        of_class.setdefault(wanted.class_name, []).append(wanted.name)
    classes = {wanted.class_name: wanted.device_class for wanted in chosen}
    for name, requests in of_class.items():
        device_class = classes[name]
        listed = _unless_all(requests, chosen)
        found += (
            DeviceAllocationConfiguration(source=FROM_CLASS, requests=listed, opaque=config.opaque)
            for config in (() if device_class is None else device_class.spec.config)
        )
    for own in claim.claim.spec.devices.config:
        if own.requests and not any(_names(own.requests, wanted) for wanted in chosen):
            continue
        found.append(
            DeviceAllocationConfiguration(
                source=FROM_CLAIM, requests=_unless_all(own.requests, chosen), opaque=own.opaque
            )
        )
    return tuple(found)


def _names(requests: Iterable[str], wanted: Wanted) -> bool:
    return any(name in (wanted.request, wanted.name) for name in requests)


def _unless_all(requests: Sequence[str], chosen: Sequence[Wanted]) -> tuple[str, ...]:
    return () if all(_names(requests, wanted) for wanted in chosen) else tuple(requests)


def _node_selector(claim: PreparedClaim, taken: Sequence[Taken], node: str) -> NodeSelector | None:
    """From where the devices can be reached: this node, or what their slices require together; None is everywhere."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for one in taken:
        spec, device = one.device.of.spec, one.device.device
        is_own = bool(spec.per_device_node_selection)
        node_name = device.node_name if is_own else spec.node_name
        selector = device.node_selector if is_own else spec.node_selector
        if node_name is not None or device.binds_to_node:
            here = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
            return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(here,)),))
        if selector is None or not selector.node_selector_terms:
            continue
        if len(selector.node_selector_terms) > 1:
            raise AllocationError(
                f"create NodeSelector for claim {claim.claim.metadata.name}: "
                f"unsupported ResourceSlice.NodeSelector with {len(selector.node_selector_terms)} terms"
            )
        (term,) = selector.node_selector_terms
        fields += (r for r in term.match_fields if r not in fields)
        expressions += (r for r in term.match_expressions if r not in expressions)
    if not fields and not expressions:
        return None
    term = NodeSelectorTerm(match_fields=tuple(fields), match_expressions=tuple(expressions))
    return NodeSelector(node_selector_terms=(term,))
