"""The sentence that tells why no node did: `0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu.`

Read by people and scripts, so it is kube-scheduler's to the letter.
"""

from __future__ import annotations

from collections.abc import Mapping


def nodes_message(nodes: int, counts: Mapping[str, int]) -> str:
    """`counts`: reason → on how many of the nodes. The entries are sorted as text, so `11 x` comes before `2 y`."""
    text = f"0/{nodes} nodes are available:"
    entries = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"{text} {', '.join(entries)}." if entries else text
