"""How an allocation can fail, other than by there being no devices."""

from __future__ import annotations


class AllocationError(Exception):
    """Something is wrong with a claim, a class or a slice: the attempt ends with this, on whatever node it was found."""


class NodeLocalFailure(Exception):
    """This node cannot do for a reason of its own; the others may."""


class SearchGivenUp(Exception):
    """The search took more steps than it may."""
