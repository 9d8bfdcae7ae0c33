"""The demo's chapter on devices (DRA): a training of four pods that want two GPUs each, all of one host.

Three hosts have six, seven and eight GPUs. The gang goes whole to the one that has enough; a second one waits whole, and its pods say why,
until the first is gone and whoever looks after claims has taken the devices back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidelog.api.objects import Object, Pod, ResourceClaim, pod_condition
from tidelog.configuration.configuration import default_configuration
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import verify
from tidelog.testing import builders as b
from tidelog.testing import devices as d
from tidelog.testing.builders import HOSTNAME

Say = Callable[[str], None]

GPUS = {"host-1": 6, "host-2": 8, "host-3": 7}
PODS = 4


def tell(say: Say = print) -> None:
    """The chapter."""
    driver = Driver()
    driver.start(default_configuration(Registry(), {"TopologyAwareWorkloadScheduling": True}))
    driver.put(*_hosts(), d.device_class("gpu", f'device.driver == "{d.DRIVER}"'))
    hosts = ", ".join(f"{host} {count}" for host, count in GPUS.items())
    say("")
    say(f"  GPUs: {hosts}. Two trainings of {PODS} pods, two GPUs each, all of one host ({HOSTNAME}).\n")
    for name in ("alpha", "beta"):
        driver.put(*_training(name))
        driver.settle()
        _print_training(driver, name, say)
    say("\n  alpha ends, and its claims give their devices back:\n")
    for index in range(PODS):
        driver.delete(_object(driver, f"Pod/default/alpha-{index}"))
        driver.delete(_object(driver, f"ResourceClaim/default/alpha-{index}"))
    driver.advance(seconds=20)
    _print_training(driver, "beta", say)
    report = verify(driver.records, driver.registry)
    assert report.is_identical, "the demo's log does not verify"
    say(f"\n  {len(driver.records)} records; made once more, all {report.outcomes} outcomes are the same.")


def _hosts() -> Iterator[Object]:
    for host, count in GPUS.items():
        yield b.node(host).label({HOSTNAME: host}).capacity(cpu="64").build()
        yield d.resource_slice(f"{host}-gpus", [f"gpu-{i}" for i in range(count)], node=host)


def _training(name: str) -> Iterator[Object]:
    yield b.pod_group(name, min_count=PODS, level=HOSTNAME)
    for index in range(PODS):
        own = f"{name}-{index}"
        yield d.claim(own, d.request("gpus", count=2))
        pod = b.pod(own).group(name).request(cpu="1").scheduler("default-scheduler")
        yield pod.claim("gpus", claim=own).build()


def _object(driver: Driver, key: str) -> Object:
    return driver.core.cluster.objects[key]


def _print_training(driver: Driver, name: str, say: Say) -> None:
    for index in range(PODS):
        claim = _object(driver, f"ResourceClaim/default/{name}-{index}")
        pod = _object(driver, f"Pod/default/{name}-{index}")
        assert isinstance(claim, ResourceClaim)
        assert isinstance(pod, Pod)
        if pod.spec.node_name:
            say(f"  {name}-{index}  {pod.spec.node_name}  {' '.join(d.devices_of(claim))}")
            continue
        condition = pod_condition(pod, "PodScheduled")
        say(f"  {name}-{index}  waits: {condition.message if condition else 'nobody has looked at it'}")
