"""No volume is promised twice, whatever comes between: attempts in flight, aborts, answers, deletions, restarts."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.storage import PersistentVolume, PersistentVolumeClaim
from tidelog.api.volumes import is_fully_bound
from tidelog.daemon.actors import volume_steps as steps
from tidelog.eventlog.records import AttemptAborted, Reserved, Scheduled, decode_body
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.testing import builders as b
from tidelog.testing import storage as s

HOST = "kubernetes.io/hostname"
CLAIMS = 4
STEPS = (
    "pod",
    "attempt",
    "attempt",
    "commit",
    "commit",
    "bind",
    "provide",
    "unclaim",
    "unvolume",
    "unpod",
    "wait",
    "restart",
)
Story = Sequence[tuple[str, int]]


class World:
    """Three nodes, volumes on them, claims of a class whose volumes are there and of one whose volumes are made."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.start()
        self.driver.put(s.local_class(), s.storage_class())
        for i in range(3):
            self.driver.put(b.node(f"n{i}").label({HOST: f"n{i}"}).capacity(cpu="8").build())
            self.driver.put(s.volume(f"pv-{i}", f"{i + 1}Gi", on={HOST: f"n{i}"}))
        for i in range(CLAIMS):
            self.driver.put(self.claim(i))
        self.pods = 0

    @staticmethod
    def claim(i: int) -> PersistentVolumeClaim:
        return s.claim(f"c{i}", "1Gi", "fast" if i % 2 else "local")

    def do(self, step: str, number: int) -> None:
        driver, objects = self.driver, self.driver.core.objects
        claim = objects.get(f"PersistentVolumeClaim/default/c{number % CLAIMS}")
        if step == "pod":
            self.pods += 1
            driver.put(
                b.pod(f"p{self.pods}")
                .request(cpu="1")
                .pvc(f"c{number % CLAIMS}")
                .scheduler("default-scheduler")
                .build()
            )
        elif step == "attempt":
            driver.attempt()
        elif step == "commit":
            driver.commit(most=1 + number % 2)
        elif step == "bind" and isinstance(claim, PersistentVolumeClaim) and not is_fully_bound(claim):
            promised = [v for v in objects.values() if isinstance(v, PersistentVolume) and v.spec.claim_ref]
            volume = steps.best_volume([v for v in promised if steps.satisfies(v, claim)], claim)
            if volume is not None:
                driver.put(*steps.bound(volume, claim))
        elif step == "provide" and isinstance(claim, PersistentVolumeClaim) and not is_fully_bound(claim):
            if steps.SELECTED_NODE in claim.metadata.annotations:
                driver.put(*steps.provided(claim, s.storage_class()))
        elif step == "unclaim":
            if claim is not None:
                driver.delete(claim)
            driver.put(self.claim(number % CLAIMS))
        elif step == "unvolume":
            name = f"pv-{number % 3}"
            if (found := objects.get(f"PersistentVolume//{name}")) is not None:
                driver.delete(found)
            else:
                driver.put(s.volume(name, on={HOST: f"n{number % 3}"}))
        elif step == "unpod":
            if (found := objects.get(f"Pod/default/p{number}")) is not None:
                driver.delete(found)
        elif step == "wait":
            driver.now += 10**9 * (1 if number else 700)
        elif step == "restart":
            driver.submitted.clear()
            driver.core = recover(driver.records, driver.registry)
            driver.start()


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), max_size=60))
def test_no_volume_is_promised_twice(story: Story) -> None:
    world = World()
    driver = world.driver
    given_to: dict[tuple[str, str], str] = {}
    for step, number in story:
        before = len(driver.records)
        world.do(step, number)
        for record in driver.records[before:]:
            body = decode_body(record)
            if record.kind in ("ObjectPut", "ObjectDeleted") and record.key.startswith("PersistentVolume/"):
                given_to = {k: v for k, v in given_to.items() if k[0] != record.key}
            if isinstance(body, Reserved):
                for write in body.writes:
                    if "spec" in write.patch:
                        claim = write.patch["spec"]["claimRef"]["name"]
                        assert given_to.setdefault((write.key, write.uid), claim) == claim
    driver.commit()
    driver.settle()
    records = driver.records
    report = verify(records, driver.registry)
    assert report.first_difference is None
    assert report.digest == driver.core.digest() == recover(records, driver.registry).digest()


def test_second_attempt_in_flight_does_not_take_the_volume_that_the_first_has() -> None:
    driver = Driver()
    driver.start()
    driver.put(
        s.local_class(), b.node("n").label({HOST: "n"}).build(), s.volume("small"), s.volume("large", "9Gi")
    )
    for name in ("a", "b"):
        driver.put(
            s.claim(name, storage_class="local"), b.pod(name).pvc(name).scheduler("default-scheduler").build()
        )

    driver.attempt()
    driver.attempt()
    driver.commit()

    taken = [
        write.key
        for r in driver.records
        if isinstance(body := decode_body(r), Reserved)
        for write in body.writes
    ]
    assert taken == ["PersistentVolume//small", "PersistentVolume//large"]


def test_volume_that_goes_before_the_commit_takes_the_decision_with_it_and_everything_is_as_before() -> None:
    driver = Driver()
    driver.start()
    volume = s.volume("v")
    driver.put(s.local_class(), b.node("n").build(), volume, s.claim("a", storage_class="local"))
    driver.put(b.pod("a").pvc("a").scheduler("default-scheduler").build())

    driver.attempt()
    driver.delete(volume)
    driver.commit()

    body = decode_body(driver.records[-1])
    assert isinstance(body, AttemptAborted)
    assert body.reason == "PersistentVolume//v changed"
    assert driver.core.cluster.listers.storage.volume("v") is None
    driver.put(volume)
    driver.settle()
    assert driver.kinds()[-1] == "Reserved"


def test_aborted_promise_aborts_who_shared_it() -> None:
    driver = Driver()
    driver.start()
    driver.put(s.local_class(), b.node("n").build(), s.volume("v"), s.claim("a", storage_class="local"))
    driver.put(*(b.pod(name).pvc("a").scheduler("default-scheduler").build() for name in ("p", "q")))
    driver.attempt()
    driver.attempt()

    driver.delete(driver.pod("p"))
    driver.commit()

    aborted = [r.key for r in driver.records if r.kind == "AttemptAborted"]
    assert aborted == ["Pod/default/p", "Pod/default/q"]
    driver.settle()
    assert [r.key for r in driver.records if r.kind == "Reserved"] == ["Pod/default/q"]


def test_claim_that_has_its_volume_costs_one_attempt() -> None:
    driver = Driver()
    driver.start()
    claim = s.claim("a", volume="v")
    driver.put(s.storage_class(), b.node("n").build(), claim, s.volume("v", bound=claim))
    driver.put(b.pod("p").pvc("a").scheduler("default-scheduler").build())

    driver.settle()

    outcomes = [r.kind for r in driver.records if r.key == "Pod/default/p"][1:]
    assert outcomes == ["Scheduled"]
    assert isinstance(decode_body(driver.records[-1]), Scheduled)
