"""Claims as the search wants them: each request as alternatives, with class, selectors and number; errors kept for their turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tidelog.api.cel.errors import EvaluationError, InvalidExpression
from tidelog.api.cel.program import COST_MAX, compile_selector
from tidelog.api.objects import (
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    Quantity,
    ResourceClaim,
    Toleration,
)
from tidelog.plugins.dynamic_resources.capacity import Consumption, consumption
from tidelog.plugins.dynamic_resources.errors import AllocationError
from tidelog.plugins.dynamic_resources.inventory import PoolDevice

RESULTS_MAX = 32
"""Devices of one claim."""
_CHEAP = 200
"""Units of a selector that are not worth a step each. Arbitrary: what selectors are written for costs less."""
EXACT_COUNT, ALL = "ExactCount", "All"


class _Selector(NamedTuple):
    expression: str
    error_prefix: str
    """`class <c>` or `claim <ns>/<name>`, and which of its selectors."""


class Wanted:
    """One request, or one alternative of it."""

    def __init__(
        self,
        claim: str,
        request: DeviceRequest,
        exact: ExactDeviceRequest | DeviceSubRequest,
        alternative: DeviceSubRequest | None,
        device_class: DeviceClass | None,
        cost_max: int,
    ) -> None:
        self.claim = claim
        self.request = request.name
        self.alternative = "" if alternative is None else alternative.name
        self.own_name = self.alternative or self.request
        self.device_class = device_class
        self.class_name = exact.device_class_name
        self.is_all = exact.allocation_mode == ALL
        self.mode = exact.allocation_mode or EXACT_COUNT
        self.count = 1 if exact.count is None else exact.count
        self.has_admin_access = isinstance(exact, ExactDeviceRequest) and bool(exact.admin_access)
        self.tolerations: tuple[Toleration, ...] = exact.tolerations
        self.capacity: Mapping[str, Quantity] = {} if exact.capacity is None else exact.capacity.requests
        self.error = self._first_error(exact.selectors)
        class_selectors = () if device_class is None else device_class.spec.selectors
        self._of_class = _selectors(class_selectors, f"class {self.class_name}")
        self._selectors = (*self._of_class, *_selectors(exact.selectors, f"claim {claim}"))
        self._cost_max = cost_max
        self._matches: dict[PoolDevice, bool] = {}
        self._consumptions: dict[PoolDevice, tuple[Consumption, ...] | None] = {}

    @property
    def name(self) -> str:
        """`request` or `request/alternative`."""
        return f"{self.request}/{self.alternative}" if self.alternative else self.request

    def fail(self, why: str) -> AllocationError:
        """An error that names claim and request."""
        return AllocationError(f"claim {self.claim}, request {self.own_name}: {why}")

    def _first_error(self, selectors: Sequence[DeviceSelector]) -> str:
        for index, selector in enumerate(selectors):
            if selector.cel is None:
                return f"claim {self.claim}, request {self.own_name}, selector #{index}: CEL expression empty (unsupported selector type?)"
        head = f"claim {self.claim}, request {self.own_name}: "
        if not self.class_name:
            return f"{head}missing device class name (unsupported request type?)"
        if self.device_class is None:
            problem = f'deviceclass.resource.k8s.io "{self.class_name}" not found'
            return f"{head}could not retrieve device class {self.class_name}: {problem}"
        if self.mode not in (EXACT_COUNT, ALL):
            return f"{head}unsupported count mode {self.mode}"
        return ""

    def may_match(self, device: PoolDevice) -> bool:
        """Whether its selectors match; also where one fails, for nobody has asked yet."""
        try:
            return self.matches(device)
        except AllocationError:
            return True

    def is_of_class(self, device: PoolDevice) -> bool:
        """Whether the selectors of the class match; not where one fails."""
        try:
            return all(self._holds(selector, device) for selector in self._of_class)
        except AllocationError:
            return False

    def matches(self, device: PoolDevice) -> bool:
        """Whether all selectors match. Raises AllocationError."""
        found = self._matches.get(device)
        if found is None:
            found = self._matches[device] = all(self._holds(selector, device) for selector in self._selectors)
        return found

    def cost_of(self, device: PoolDevice) -> int:
        """Steps that a search pays for asking about the device: the same whether somebody has asked before or not."""
        self.may_match(device)
        return sum(device.answers.get(selector.expression, (True, 0))[1] for selector in self._selectors)

    def _holds(self, selector: _Selector, device: PoolDevice) -> bool:
        if selector.expression not in device.answers:
            device.keep(selector.expression, *self._evaluate(selector, device))
        found, _ = device.answers[selector.expression]
        if isinstance(found, EvaluationError):
            raise AllocationError(
                f"{selector.error_prefix} on device {device.name}: CEL runtime error: {found}"
            ) from None
        return found

    def _evaluate(self, selector: _Selector, device: PoolDevice) -> tuple[bool | EvaluationError, int]:
        try:
            program = compile_selector(selector.expression)
        except InvalidExpression as problem:
            raise AllocationError(f"{selector.error_prefix}: CEL compile error: {problem}") from None
        seen = device.as_selectors_see_it()
        if isinstance(seen, EvaluationError):
            return seen, 0
        try:
            answer, cost = program.matches(seen, self._cost_max)
        except EvaluationError as problem:
            return problem, 100
        if self._cost_max < COST_MAX and cost > _CHEAP:
            return answer, cost
        return answer, cost // 10

    def consumes(self, device: PoolDevice) -> tuple[Consumption, ...] | None:
        """Return the amounts it would take of the device's capacities; None if the device does not do. Raises AllocationError."""
        if device not in self._consumptions:
            try:
                found = consumption(device.device.capacity, self.capacity)
            except ValueError as problem:
                raise self.fail(f"checking capacity for device {device.name}: {problem}") from None
            self._consumptions[device] = found
        return self._consumptions[device]

    def tolerates_all(self, device: PoolDevice) -> bool:
        """Whether no taint of the device keeps it away."""
        return all(
            taint.effect not in ("NoSchedule", "NoExecute")
            or any(
                _tolerates(toleration, taint.key, taint.value, taint.effect)
                for toleration in self.tolerations
            )
            for taint in device.taints
        )


def _selectors(found: Sequence[DeviceSelector], whose: str) -> list[_Selector]:
    return [
        _Selector(selector.cel.expression if selector.cel else "", f"{whose}: selector #{index}")
        for index, selector in enumerate(found)
    ]


def _tolerates(toleration: Toleration, key: str, value: str, effect: str) -> bool:
    if toleration.effect and toleration.effect != effect:
        return False
    if toleration.key and toleration.key != key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == value


class PreparedRequest(NamedTuple):
    """`alternatives` is one, if the request has none."""

    name: str
    alternatives: tuple[Wanted, ...]
    is_prioritized: bool


class PreparedClaim(NamedTuple):
    """A claim that wants devices."""

    claim: ResourceClaim
    name: str
    """`namespace/name`."""
    requests: tuple[PreparedRequest, ...]
    bad_constraint: int
    """The index of the first constraint that says nothing that is known, or -1."""


def prepare(
    claim: ResourceClaim, class_of: Callable[[str], DeviceClass | None], cost_max: int
) -> PreparedClaim:
    """The claim, for any node; `cost_max` is what a selector may cost about one device."""
    name = f"{claim.metadata.namespace}/{claim.metadata.name}"
    devices = claim.spec.devices
    bad = (
        index
        for index, found in enumerate(devices.constraints)
        if found.match_attribute is None and found.distinct_attribute is None
    )
    requests = tuple(_request(name, one, class_of, cost_max) for one in devices.requests)
    return PreparedClaim(claim, name, requests, next(bad, -1))


def _request(
    claim: str, request: DeviceRequest, class_of: Callable[[str], DeviceClass | None], cost_max: int
) -> PreparedRequest:
    if request.first_available:
        subs = tuple(
            Wanted(claim, request, sub, sub, class_of(sub.device_class_name), cost_max)
            for sub in request.first_available
        )
        return PreparedRequest(request.name, subs, True)
    exact = request.exactly or ExactDeviceRequest()
    only = Wanted(claim, request, exact, None, class_of(exact.device_class_name), cost_max)
    return PreparedRequest(request.name, (only,), False)
