"""What an attempt's records say of spread that has fallen back."""

from __future__ import annotations

from tidelog.eventlog.records import Fallback
from tidelog.scheduler.fallback import preemption_marks
from tidelog.testing import builders as b


def test_nomination_keeps_the_constraints_fallen_back_whose_preemption_failed_and_no_others() -> None:
    provisioning, preemption, both = (
        ("NodeProvisioningFailed",),
        ("PreemptionFailed",),
        ("NodeProvisioningFailed", "PreemptionFailed"),
    )
    fallen = (provisioning, preemption, both)
    fallback = tuple(
        Fallback(constraint=number, topology_key=b.ZONE, criteria=criteria)
        for number, criteria in enumerate(fallen)
    )

    assert preemption_marks(fallback) == (1, 2)
