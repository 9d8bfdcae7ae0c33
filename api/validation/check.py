"""One validation of one object: the errors found so far, and what its rules depend on beside the object."""

from __future__ import annotations

from typing import Any

from tidelog.api.features import FeatureGates
from tidelog.api.validation.field_errors import ErrorList


class Check(ErrorList):
    """The error list that a kind's validators add to."""

    def __init__(
        self, gates: FeatureGates, old: Any = None, *, constraints_max: int = 1, resize: bool = False
    ) -> None:
        super().__init__()
        self.gates = gates
        self.old = old
        """The stored object that this one replaces; None for a new one."""
        self.constraints_max = constraints_max
        """Number of topology constraints that a group may have."""
        self.resize = resize
        """Whether cpu and memory of a pod's containers may change."""
