"""Queue traces with pod groups as entities: the same operations, and some more, on the same queue."""

from __future__ import annotations

from families.queue import answer, differences

__all__ = ["answer", "differences"]
