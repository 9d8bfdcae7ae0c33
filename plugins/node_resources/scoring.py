"""How full a node would be with the pod on it, as a score: the strategies and the arguments that choose among them.

Shared by NodeResourcesFit, which scores nodes, and by whoever scores whole placements with the same strategies. All are integer
arithmetic but for the last rounding of RequestedToCapacityRatio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tidelog.api.errors import FieldError
from tidelog.framework.arithmetic import div_trunc, round_half_away
from tidelog.framework.interface import PluginArgs

LEAST_ALLOCATED = "LeastAllocated"
MOST_ALLOCATED = "MostAllocated"
REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"
STRATEGIES = (LEAST_ALLOCATED, MOST_ALLOCATED, REQUESTED_TO_CAPACITY_RATIO)

MAX_UTILIZATION = 100
MAX_SHAPE_SCORE = 10
_SHAPE_FACTOR = 10
"""Shapes are written with scores of 0..10, which count tenfold."""
MAX_WEIGHT = 100

Use = tuple[int, int, int]
"""One resource of a node: what would be requested of it, its allocatable amount (not zero), and its weight."""
Strategy = Callable[[Iterable[Use]], int]


class ResourceSpec(PluginArgs, frozen=True, kw_only=True):
    """A resource that is scored. Weight 0 is 1."""

    name: str = ""
    weight: int = 1


class UtilizationShapePoint(PluginArgs, frozen=True, kw_only=True):
    utilization: int = 0
    score: int = 0


class RequestedToCapacityRatioParam(PluginArgs, frozen=True, kw_only=True):
    shape: tuple[UtilizationShapePoint, ...] = ()


DEFAULT_RESOURCES = (ResourceSpec(name="cpu"), ResourceSpec(name="memory"))


class ScoringStrategy(PluginArgs, frozen=True, kw_only=True):
    type: str = LEAST_ALLOCATED
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None


def weighted_resources(resources: Sequence[ResourceSpec]) -> list[tuple[str, int]]:
    """(name, weight) of each; an empty list stands for the defaults."""
    return [(spec.name, spec.weight or 1) for spec in resources or DEFAULT_RESOURCES]


def strategy_of(args: ScoringStrategy) -> Strategy:
    """The strategy that valid arguments describe."""
    if args.type == MOST_ALLOCATED:
        return most_allocated
    if args.type == REQUESTED_TO_CAPACITY_RATIO:
        ratio = args.requested_to_capacity_ratio
        assert ratio is not None, "validation lets this type pass only with a shape"
        return requested_to_capacity_ratio([(p.utilization, p.score * _SHAPE_FACTOR) for p in ratio.shape])
    return least_allocated


def least_allocated(uses: Iterable[Use]) -> int:
    """The free part, in percent; 0 for what is overcommitted."""
    total = weights = 0
    for requested, capacity, weight in uses:
        if requested <= capacity:
            total += (capacity - requested) * 100 // capacity * weight
        weights += weight
    return total // weights if weights else 0


def most_allocated(uses: Iterable[Use]) -> int:
    """The used part, in percent; 100 for what is overcommitted."""
    total = weights = 0
    for requested, capacity, weight in uses:
        total += min(requested, capacity) * 100 // capacity * weight
        weights += weight
    return total // weights if weights else 0


def requested_to_capacity_ratio(shape: Sequence[tuple[int, int]]) -> Strategy:
    """The used part in percent, bent by a shape of (utilization, score 0..100) points; scores of 0 do not count."""

    def strategy(uses: Iterable[Use]) -> int:
        total = weights = 0
        for requested, capacity, weight in uses:
            full = requested > capacity
            score = interpolate(shape, MAX_UTILIZATION if full else requested * MAX_UTILIZATION // capacity)
            if score > 0:
                total += score * weight
                weights += weight
        return round_half_away(total / weights) if weights else 0

    return strategy


def interpolate(shape: Sequence[tuple[int, int]], utilization: int) -> int:
    """The score at a utilization: linear between the points, constant beyond the first and the last."""
    before: tuple[int, int] | None = None
    for at, score in shape:
        if utilization <= at:
            if before is None or utilization == at:
                return score
            # The product is formed first, and a falling line is truncated upwards.
            return before[1] + div_trunc((score - before[1]) * (utilization - before[0]), at - before[0])
        before = (at, score)
    return shape[-1][1]


# --- validation -----------------------------------------------------------------------------------------------------------


def strategy_errors(args: ScoringStrategy, path: str) -> Iterator[FieldError]:
    """Every rule that the arguments break."""
    if args.type not in STRATEGIES:
        rule = f"supported values: {', '.join(STRATEGIES)}"
        yield FieldError(path=f"{path}.type", kind="NotSupported", value=args.type, rule=rule)
    for i, spec in enumerate(args.resources):
        if not 0 <= spec.weight <= MAX_WEIGHT:
            rule = f"resource weight must be in 1..{MAX_WEIGHT} (0 or absent is 1)"
            yield FieldError(
                path=f"{path}.resources[{i}].weight", kind="Invalid", value=spec.weight, rule=rule
            )
    yield from resource_name_errors(args.resources, f"{path}.resources")
    ratio, where = args.requested_to_capacity_ratio, f"{path}.requestedToCapacityRatio"
    if args.type == REQUESTED_TO_CAPACITY_RATIO:
        yield from shape_errors(ratio.shape if ratio else (), f"{where}.shape")
    elif ratio is not None:
        rule = f"may only be set when the type is {REQUESTED_TO_CAPACITY_RATIO}"
        yield FieldError(path=where, kind="Forbidden", rule=rule)


def resource_name_errors(resources: Sequence[ResourceSpec], path: str) -> Iterator[FieldError]:
    """Every resource needs a name, and one that is named twice would count twice."""
    seen: set[str] = set()
    for i, spec in enumerate(resources):
        if not spec.name:
            yield FieldError(path=f"{path}[{i}].name", kind="Required", rule="the name of a resource")
        elif spec.name in seen:
            yield FieldError(path=f"{path}[{i}].name", kind="Duplicate", value=spec.name)
        seen.add(spec.name)


def shape_errors(shape: Sequence[UtilizationShapePoint], path: str) -> Iterator[FieldError]:
    """Every rule that the points break."""
    if not shape:
        yield FieldError(path=path, kind="Required", rule="at least one point must be specified")
    for i, point in enumerate(shape):
        where = f"{path}[{i}]"
        if not 0 <= point.utilization <= MAX_UTILIZATION:
            rule = f"must be in 0..{MAX_UTILIZATION}"
            yield FieldError(path=f"{where}.utilization", kind="Invalid", value=point.utilization, rule=rule)
        if i and point.utilization <= shape[i - 1].utilization:
            rule = "utilization values must be sorted in increasing order"
            yield FieldError(path=f"{where}.utilization", kind="Invalid", value=point.utilization, rule=rule)
        if not 0 <= point.score <= MAX_SHAPE_SCORE:
            rule = f"must be in 0..{MAX_SHAPE_SCORE}"
            yield FieldError(path=f"{where}.score", kind="Invalid", value=point.score, rule=rule)
