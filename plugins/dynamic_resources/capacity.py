"""How much of a device a request consumes, and whether that much is left.

A device that several may have at once has capacities; what a request does not ask for it gets by the capacity's policy: the default, or all of
it. Every capacity counts, asked for or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from tidelog.api.objects import CapacityRange, CapacityRequestPolicy, DeviceCapacity, Quantity
from tidelog.api.quantity import MAX, canonical, parse_exact, parse_units

Amounts = Mapping[str, Fraction]


class Consumption(NamedTuple):
    """Of one capacity."""

    name: str
    amount: Fraction
    text: str
    """As it is written."""
    most: Fraction
    """The capacities of the device."""


def consumption(
    capacities: Mapping[str, DeviceCapacity], requests: Mapping[str, Quantity]
) -> tuple[Consumption, ...] | None:
    """Return the amount that the request would consume of each capacity; None if the device cannot be asked for that. Raises ValueError."""
    if any(name not in capacities for name in requests):
        return None
    found: list[Consumption] = []
    for name, capacity in sorted(capacities.items()):
        text = _consumed(requests.get(name), capacity, name)
        amount = _exact(text)
        if amount < 0:
            raise ValueError(f'capacity "{name}": capacity value is negative')
        found.append(Consumption(name, amount, canonical(text), _exact(capacity.value)))
    if any(_violates(one.amount, capacities[one.name].request_policy) for one in found):
        return None
    return tuple(found)


def is_left(wanted: tuple[Consumption, ...], consumed: Amounts, allocating: Amounts) -> bool:
    """Whether all of it fits beside what others have and what this search has given away."""
    zero = Fraction(0)
    return all(
        one.amount + consumed.get(one.name, zero) + allocating.get(one.name, zero) <= one.most
        for one in wanted
    )


def _exact(quantity: Quantity) -> Fraction:
    return Fraction(*parse_exact(quantity))


def _consumed(requested: Quantity | None, capacity: DeviceCapacity, name: str) -> str:
    policy = capacity.request_policy
    if requested is None:
        has_default = policy is not None and policy.default is not None
        return str(policy.default if has_default and policy is not None else capacity.value)
    if policy is not None and policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded(requested, policy.valid_range, name)
    if policy is not None and policy.valid_values:
        fitting = (value for value in policy.valid_values if _exact(requested) <= _exact(value))
        return str(next(fitting, requested))
    return str(requested)


def _rounded(requested: Quantity, limits: CapacityRange, name: str) -> str:
    assert limits.min is not None
    if _exact(requested) < _exact(limits.min):
        return str(limits.min)
    if limits.step is None:
        return str(requested)
    if _exact(requested) > MAX:
        raise ValueError(f'capacity "{name}": request {requested} exceeds MaxInt64')
    least, step = parse_units(limits.min), parse_units(limits.step)
    if step <= 0:
        raise ValueError(f'capacity "{name}": a step must be positive')
    rounded = least + -(-(parse_units(requested) - least) // step) * step
    if rounded > MAX:
        raise ValueError(
            f'capacity "{name}": rounding request {requested} up to the next step passes MaxInt64'
        )
    return str(rounded)


def _violates(amount: Fraction, policy: CapacityRequestPolicy | None) -> bool:
    if policy is None or (policy.default is not None and amount == _exact(policy.default)):
        return False
    if policy.valid_range is not None:
        return _leaves(amount, policy.valid_range)
    return bool(policy.valid_values) and amount not in [_exact(value) for value in policy.valid_values]


def _leaves(amount: Fraction, limits: CapacityRange) -> bool:
    if limits.max is not None and amount > _exact(limits.max):
        return True
    if limits.step is None:
        return False
    step = parse_units(limits.step)
    least = 0 if limits.min is None else parse_units(limits.min)
    return step <= 0 or (-(-amount.numerator // amount.denominator) - least) % step != 0
