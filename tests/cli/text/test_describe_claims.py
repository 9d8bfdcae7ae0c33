"""`describe pod` about volumes and claims of devices: which claim stands behind each, and how far it is."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tidelog.api.objects import EphemeralVolume, Pod, PodResourceClaim, Volume
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b
from tidelog.testing import devices as d
from tidelog.testing import storage as s

Run = Callable[..., tuple[int, str]]
COLUMN = 22


def described(run: Run, section: str) -> list[str]:
    """The lines of a section of pod p."""
    code, told = run("describe", "pod", "p")
    assert code == 0
    lines = told.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(f"{section}:"))
    found = [lines[first][COLUMN:]]
    for line in lines[first + 1 :]:
        if line[:COLUMN].strip():
            break
        found.append(line[COLUMN:])
    return found


def pod() -> Pod:
    return b.pod("p").uid("uid-p").scheduler("default-scheduler").build()


def with_volumes(*volumes: Volume) -> Pod:
    found = pod()
    return replace(found, spec=replace(found.spec, volumes=(*found.spec.volumes, *volumes)))


def test_volumes_are_told_by_their_claims(driver: Driver, run: Run) -> None:
    bound = s.claim("data", volume="pv-1", phase="Bound")
    waiting = (
        b.pod("p").uid("uid-p").scheduler("default-scheduler").pvc("data").pvc("later").pvc("gone").build()
    )
    driver.put(
        b.node("n1").build(), s.storage_class(), bound, s.volume("pv-1", bound=bound), s.claim("later")
    )
    driver.put(waiting)
    driver.settle()

    names = [volume.name for volume in waiting.spec.volumes]
    assert described(run, "Volumes") == [
        f"{names[0]}: PersistentVolumeClaim data, Bound to pv-1, 1Gi, class fast",
        f"{names[1]}: PersistentVolumeClaim later, Pending, 1Gi, class fast",
        f"{names[2]}: PersistentVolumeClaim gone, which does not exist",
    ]


def test_other_volumes_are_told_by_their_kind(driver: Driver, run: Run) -> None:
    driver.put(
        with_volumes(
            Volume(name="scratch", ephemeral=EphemeralVolume()),
            Volume(name="inline", csi={"driver": "csi.example.com"}),
            Volume(name="settings"),
        )
    )

    assert described(run, "Volumes") == [
        "scratch: EphemeralVolume, PersistentVolumeClaim p-scratch, which does not exist",
        "inline: CSI",
        "settings: of a kind that scheduling does not look at",
    ]


def test_claims_of_devices_are_told_with_their_devices(driver: Driver, run: Run) -> None:
    claims = (
        PodResourceClaim(name="mine", resource_claim_name="gpus"),
        PodResourceClaim(name="made", resource_claim_template_name="template"),
    )
    taken = d.claim("gpus", d.request(), status=d.allocated("gpu-0", "gpu-1", pool="host-1"))
    waiting = pod()
    driver.put(taken, replace(waiting, spec=replace(waiting.spec, resource_claims=claims)))

    assert described(run, "Resource Claims") == [
        f"mine: ResourceClaim gpus, allocated: {d.DRIVER}/host-1/gpu-0, {d.DRIVER}/host-1/gpu-1, not reserved for this pod",
        "made: from template template, not created yet",
    ]


def test_claim_that_was_allocated_by_the_attempt_is_reserved_for_its_pod(driver: Driver, run: Run) -> None:
    claims = tuple(PodResourceClaim(name=name, resource_claim_name=name) for name in ("gpu", "absent"))
    node = b.node("n1").build()
    driver.put(
        node,
        d.device_class("gpu", "true"),
        d.resource_slice("n1", ["gpu-0"], node="n1"),
        d.claim("gpu", d.request()),
    )
    placed = pod()
    driver.put(replace(placed, spec=replace(placed.spec, resource_claims=claims[:1])))
    driver.advance(seconds=5)

    assert described(run, "Resource Claims") == [f"gpu: ResourceClaim gpu, allocated: {d.DRIVER}/n1/gpu-0"]


def test_pod_without_any_has_no_such_sections(driver: Driver, run: Run) -> None:
    driver.put(pod())

    _, told = run("describe", "pod", "p")

    assert "Volumes:" not in told
    assert "Resource Claims:" not in told
