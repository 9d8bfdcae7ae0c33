"""`why` about pods with claims of devices: which devices a claim gets, for whom, and what is short."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.replay.driver import Driver
from tidelog.testing import builders as b
from tidelog.testing import devices as d

Run = Callable[..., tuple[int, str]]


def test_why_tells_which_devices_a_pods_claim_got_and_why_the_next_one_waits(
    driver: Driver, run: Run
) -> None:
    driver.put(b.node("n1").build(), d.device_class(), d.resource_slice("s", ["g0", "g1"], node="n1"))
    for name, count in {"first": 1, "second": 2}.items():
        driver.put(d.claim(name, d.request("r", "gpu", count=count)))
        driver.put(b.pod(name).uid(name).claim("c", claim=name).scheduler("default-scheduler").build())
        driver.settle()
    driver.put(b.pod("third").uid("third").claim("c", claim="first").scheduler("default-scheduler").build())
    driver.settle()

    (_, first), (_, second), (_, third) = (run("why", name) for name in ("first", "second", "third"))

    assert "attempt 1: its place is n1" in first
    assert "attempt 1: attempt" not in first
    assert f"gives {d.DRIVER}/n1/g0 to resourceclaim default/first, for pods first" in first
    assert "keeps resourceclaim default/first from being deleted while it has devices" in first
    assert (
        "claim second, request r: 2 devices of class gpu: n1 comes closest, with 1 free of 2; the end of who has the others: claim default/first (of first, third)"
        in second
    )
    assert "reserves resourceclaim default/first for pods first, pods third" in third
