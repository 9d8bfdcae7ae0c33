"""Count the modules, and the calls between modules, from the pop of a pod to its outcome in the log: how far a reader has to go.

    .venv/bin/python tools/trace_a_pod.py            the table
    .venv/bin/python tools/trace_a_pod.py --calls    … and every call from one module into another, with how often

A small cluster, a pod like one that was placed before, the core driven from a list of records. Loading, admission and the disk are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

from tidelog.eventlog.records import Scheduled
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b

ROOT = Path(__file__).resolve().parent.parent
NODES = 20


class Calls:
    """Counts the calls of Python functions of this repository while it is entered."""

    def __init__(self) -> None:
        self.total = 0
        self.between: Counter[tuple[str, str]] = Counter()

    @property
    def modules(self) -> set[str]:
        """The modules that any call was made from or into."""
        return {module for pair in self.between for module in pair}

    def hear(self, frame: FrameType, event: str, _: object) -> None:
        """Count a call, as `sys.setprofile` tells it."""
        if event != "call":
            return
        callee = module_of(frame)
        caller = None if frame.f_back is None else module_of(frame.f_back)
        if callee is None:
            return
        self.total += 1
        if caller is not None and caller != callee:
            self.between[caller, callee] += 1


def module_of(frame: FrameType) -> str | None:
    """The module of the frame's code, if it is one of the product."""
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(ROOT) or path == Path(__file__).resolve():
        return None
    place = path.relative_to(ROOT)
    parts = place.parts[2:] if place.parts[0] == ".pkg" else place.parts
    return "/".join(parts).removesuffix(".py")


def trace() -> Calls:
    """Place a pod and count."""
    driver = Driver()
    driver.start()
    driver.put(
        *(
            b.node(f"n{i}")
            .capacity(cpu="4", memory="8Gi")
            .label({"topology.kubernetes.io/zone": "abc"[i % 3]})
            .build()
            for i in range(NODES)
        )
    )
    for name in ("first", "second", "third"):
        driver.put(b.pod(name).scheduler("default-scheduler").request(cpu="1").label(app="web").build())
        if name != "third":
            driver.settle()
    calls = Calls()
    sys.setprofile(calls.hear)
    try:
        decision = driver.attempt()
        driver.commit()
    finally:
        sys.setprofile(None)
    assert decision is not None
    assert isinstance(decision.outcomes[0][1], Scheduled)
    return calls


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", action="store_true", help="print every call between modules")
    options = parser.parse_args()
    calls = trace()
    print(f"modules                {len(calls.modules)}")
    print(f"calls                  {calls.total}")
    print(f"calls between modules  {sum(calls.between.values())}")
    if options.calls:
        for (caller, callee), count in calls.between.most_common():
            print(f"{count:5}  {caller} → {callee}")


if __name__ == "__main__":
    main()
