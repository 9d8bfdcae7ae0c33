"""`examples/devices`: four pods that want two GPUs each, all of one host."""

from __future__ import annotations

from pathlib import Path

from tidelog.api.manifests.manifests import load
from tidelog.api.objects import ResourceClaim
from tidelog.configuration.configuration import default_configuration
from tidelog.replay.driver import Driver
from tidelog.replay.verify import verify
from tidelog.testing.devices import devices_of

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "devices"


def test_training_goes_whole_to_the_one_host_with_eight_gpus() -> None:
    driver = Driver()
    driver.start(default_configuration(driver.registry, {"TopologyAwareWorkloadScheduling": True}))
    for name in ("1-hosts.yaml", "2-training.yaml"):
        driver.put(*load((EXAMPLES / name).read_text(), name))

    driver.settle()

    assert set(driver.placements().values()) == {"host-2"}
    taken = [
        device
        for key, claim in sorted(driver.core.objects.items())
        if isinstance(claim, ResourceClaim)
        for device in devices_of(claim)
    ]
    assert sorted(taken) == [f"host-2/gpu-{i}" for i in range(8)]
    assert verify(driver.records, driver.registry).first_difference is None
