"""Devices and claims for tests, as `tidelog.testing.builders` has the other objects: plain functions, with what matters as arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tidelog.api.objects import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice

DRIVER = "gpu.example.com"


def device(name: str, **fields: Any) -> dict[str, Any]:
    """A device as a slice lists it: `attributes={"model": "a100"}` and `capacity={"memory": "40Gi"}` in short, the rest as Kubernetes spells it."""
    found: dict[str, Any] = {"name": name, **fields}
    found["attributes"] = {key: _attribute(value) for key, value in fields.get("attributes", {}).items()}
    found["capacity"] = {
        key: value if isinstance(value, Mapping) else {"value": value}
        for key, value in fields.get("capacity", {}).items()
    }
    return found


def _attribute(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return {kind: value}


def resource_slice(
    name: str,
    devices: Sequence[str | dict[str, Any]] = (),
    *,
    node: str = "",
    driver: str = DRIVER,
    pool: str = "",
    generation: int = 1,
    count: int = 1,
    **spec: Any,
) -> ResourceSlice:
    """A slice; of one node, if that is given, else `allNodes` unless the specification says otherwise."""
    where: dict[str, Any] = {"nodeName": node} if node else {}
    if not node and not {"nodeSelector", "allNodes", "perDeviceNodeSelection"} & spec.keys():
        where = {"allNodes": True}
    listed = [device(one) if isinstance(one, str) else one for one in devices]
    numbers = {"name": pool or node or name, "generation": generation, "resourceSliceCount": count}
    return msgspec.convert(
        {
            "metadata": {"name": name},
            "spec": {"driver": driver, "pool": numbers, "devices": listed, **where, **spec},
        },
        ResourceSlice,
    )


def device_class(name: str = "gpu", *selectors: str, **spec: Any) -> DeviceClass:
    """A class with these selectors."""
    found = [{"cel": {"expression": one}} for one in selectors]
    return msgspec.convert({"metadata": {"name": name}, "spec": {"selectors": found, **spec}}, DeviceClass)


def request(
    name: str = "r", device_class: str = "gpu", *selectors: str, count: int = 1, **exactly: Any
) -> dict[str, Any]:
    """A request for a number of devices."""
    return {"name": name, "exactly": exact(device_class, *selectors, count=count, **exactly)}


def exact(device_class: str = "gpu", *selectors: str, count: int = 1, **fields: Any) -> dict[str, Any]:
    """Return the request, without its name."""
    found = [{"cel": {"expression": one}} for one in selectors]
    counted = {} if "allocationMode" in fields else {"allocationMode": "ExactCount", "count": count}
    return {"deviceClassName": device_class, "selectors": found, **counted, **fields}


def first_available(name: str, *alternatives: dict[str, Any]) -> dict[str, Any]:
    """A request with alternatives, the most wanted first; each an `exact` with a name."""
    return {"name": name, "firstAvailable": list(alternatives)}


def _spec(requests: Sequence[dict[str, Any]], fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"devices": {"requests": list(requests), **fields}}


def claim(
    name: str, *requests: dict[str, Any], namespace: str = "default", status: Any = None, **devices: Any
) -> ResourceClaim:
    """A claim with these requests (one device of class gpu, if none is given), constraints and config."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": _spec(requests or (request(),), devices),
            "status": status or {},
        },
        ResourceClaim,
    )


def template(
    name: str, *requests: dict[str, Any], namespace: str = "default", **devices: Any
) -> ResourceClaimTemplate:
    """A template of such claims."""
    spec = {"spec": _spec(requests or (request(),), devices)}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": namespace}, "spec": spec}, ResourceClaimTemplate
    )


def allocated(
    *devices: str,
    driver: str = DRIVER,
    pool: str,
    request: str = "r",
    node: str = "",
    conditions: Sequence[str] = (),
) -> dict[str, Any]:
    """A claim's status that has these devices: on that node alone, if one is named, and with these conditions to come true before a pod is bound."""
    result = {
        "request": request,
        "driver": driver,
        "pool": pool,
        **({"bindingConditions": conditions} if conditions else {}),
    }
    allocation: dict[str, Any] = {"devices": {"results": [{**result, "device": name} for name in devices]}}
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"allocation": allocation}


def devices_of(claim: ResourceClaim) -> list[str]:
    """`pool/device` of what the claim has, in order."""
    allocation = claim.status.allocation
    return [] if allocation is None else [f"{r.pool}/{r.device}" for r in allocation.devices.results]
