"""What becomes of a pod, and of a group, when a plugin has the last word: after a node was chosen, or none was found."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tests.worlds.objects import pod
from tidelog.api.objects import Pod, PodGroup, pod_condition
from tidelog.api.pod_status import POD_SCHEDULED
from tidelog.configuration.configuration import resolve_configuration
from tidelog.eventlog.records import AttemptError, Nominated, Unschedulable, decode_body
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource
from tidelog.framework.interface import Code, PermitResult, Plugin, Status, unschedulable
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b
from tidelog.testing import storage

HEADER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
CHOSEN = "p"
NO = unschedulable("not today")
WAIT = Status(Code.WAIT)
BROKEN = Status(Code.ERROR, ("the plugin's server is down",))


class Fickle(Plugin):
    """Says yes to every pod but one."""

    name = "Fickle"
    given_back: ClassVar[list[str]]

    def unreserve(self, state: Any, pod: Any, node: str) -> None:
        self.given_back.append(pod.name)

    def events_to_register(self) -> list[Any]:
        return []


def _fickle(point: str, answer: Any, name: str) -> type[Fickle]:
    def method(self: Any, state: Any, pod: Any, node: str) -> Any:
        if pod.name != CHOSEN:
            return PermitResult() if point == "permit" else None
        if isinstance(answer, Exception):
            raise answer
        return PermitResult(answer, 30) if point == "permit" else answer

    class Local(Fickle):
        given_back: ClassVar[list[str]] = []

        def reserve(self, state: Any, pod: Any, node: str) -> Status | None:
            return None

    setattr(Local, point, method)
    Local.__qualname__ = name
    return Local


LATE = [("reserve", NO), ("permit", NO)]
FAILING = [
    ("reserve", BROKEN),
    ("permit", BROKEN),
    ("pre_bind", BROKEN),
    ("pre_bind", NO),
    ("pre_bind", ValueError("x")),
]
ANSWERS = [*LATE, *FAILING, ("permit", WAIT)]
# By names of the module, where a process with another hash seed finds them, too.
globals().update({f"Fickle{i}": _fickle(*ANSWERS[i], f"Fickle{i}") for i in range(len(ANSWERS))})


def fickle(point: str, answer: Any) -> type[Fickle]:
    """The plugin that gives this answer at this extension point."""
    number = next(i for i, (where, what) in enumerate(ANSWERS) if where == point and what is answer)
    found: type[Fickle] = globals()[f"Fickle{number}"]
    found.given_back = []
    return found


def started(plugin: type[Plugin] | None = None, **plugins: Any) -> Driver:
    registry = Registry()
    enabled = {}
    if plugin is not None:
        registry.register(plugin)
        enabled = {"multiPoint": {"enabled": [{"name": plugin.name}]}}
    driver = Driver(registry)
    profiles = [{"plugins": {**enabled, **plugins}}]
    gates = {"featureGates": {"TopologyAwareWorkloadScheduling": True}}
    file = {**HEADER, "profiles": profiles, "tidelog": gates}
    driver.start(resolve_configuration(file, registry).configuration)
    driver.put(b.node("n1").capacity(cpu="4").build())
    return driver


def member(name: str) -> Pod:
    return b.pod(name).group("g").request(cpu="1").scheduler("default-scheduler").build()


def gang(min_count: int) -> PodGroup:
    return b.pod_group("g", min_count=min_count)


def last(driver: Driver, *kinds: type[Any]) -> Any:
    bodies = [decode_body(record) for record in driver.records]
    return next(body for body in reversed(bodies) if isinstance(body, kinds))


def reason_of(driver: Driver, name: str = CHOSEN) -> str:
    condition = pod_condition(driver.pod(name), POD_SCHEDULED)
    assert condition is not None
    return condition.reason


@pytest.mark.parametrize(("point", "answer"), LATE)
def test_pod_whose_node_is_refused_is_rejected_by_that_plugin(point: str, answer: Status) -> None:
    plugin = fickle(point, answer)
    driver = started(plugin)
    driver.put(pod(CHOSEN))

    driver.settle()

    found = last(driver, Unschedulable, AttemptError)
    assert isinstance(found, Unschedulable)
    assert found.plugins == ("Fickle",)
    assert found.message == "0/1 nodes are available: 1 not today."
    assert reason_of(driver) == "Unschedulable"
    assert driver.core.cluster.cache.pod_count == 0
    assert plugin.given_back == [CHOSEN]


@pytest.mark.parametrize(("point", "answer"), FAILING)
def test_pod_whose_binding_fails_gives_back_its_place_and_is_tried_again(point: str, answer: Any) -> None:
    plugin = fickle(point, answer)
    driver = started(plugin)
    driver.put(pod(CHOSEN))
    driver.settle()
    attempts = driver.core.attempts

    found = last(driver, Unschedulable, AttemptError)
    assert isinstance(found, AttemptError)
    assert found.plugin == "Fickle"
    assert reason_of(driver) == "SchedulerError"
    assert driver.core.cluster.cache.pod_count == 0
    assert plugin.given_back == [CHOSEN] * attempts

    driver.advance(seconds=3)
    assert driver.core.attempts > attempts


def test_pod_without_any_preemption_is_only_rejected() -> None:
    driver = started(postFilter={"disabled": [{"name": "*"}]})
    driver.put(pod("big", "8"))

    driver.settle()

    found = last(driver, Unschedulable)
    assert found.message == "0/1 nodes are available: 1 Insufficient cpu."
    assert found.plugins == ("NodeResourcesFit",)


@pytest.mark.parametrize(("point", "answer"), LATE)
def test_group_that_can_do_without_the_refused_member_goes_without_it(point: str, answer: Status) -> None:
    plugin = fickle(point, answer)
    driver = started(plugin)
    driver.put(gang(2), member("a"), member(CHOSEN), member("z"))

    driver.settle()

    assert sorted(driver.placements()) == ["default/a", "default/z"]
    assert CHOSEN in plugin.given_back
    assert reason_of(driver) == "Unschedulable"
    assert driver.core.cluster.cache.pod_count == 2


@pytest.mark.parametrize(("point", "answer"), LATE)
def test_group_that_needs_the_refused_member_is_taken_back_whole(point: str, answer: Status) -> None:
    plugin = fickle(point, answer)
    driver = started(plugin)
    driver.put(gang(3), member("a"), member(CHOSEN), member("z"))

    driver.settle()

    assert driver.placements() == {}
    assert {"a", CHOSEN} <= set(plugin.given_back)
    assert last(driver, Unschedulable, AttemptError).plugins == ("Fickle",)
    assert driver.core.cluster.cache.pod_count == 0


@pytest.mark.parametrize(("point", "answer"), [FAILING[0], FAILING[-1]])
def test_group_with_a_member_on_which_a_plugin_fails_is_taken_back_whole_and_tried_again(
    point: str, answer: Any
) -> None:
    plugin = fickle(point, answer)
    driver = started(plugin)
    driver.put(gang(2), member("a"), member(CHOSEN), member("z"))

    driver.settle()

    found = last(driver, Unschedulable, AttemptError)
    assert isinstance(found, AttemptError)
    assert driver.placements() == {}
    assert driver.core.cluster.cache.pod_count == 0
    attempts = driver.core.attempts
    driver.advance(seconds=10)
    assert driver.core.attempts > attempts


def test_wait_for_a_permit_is_told_of_and_ends_with_the_pod() -> None:
    driver = started(fickle("permit", WAIT))
    driver.put(pod(CHOSEN))
    driver.settle()
    uid = f"default/{CHOSEN}"
    permit = driver.core.permit_of(uid)
    assert permit is not None
    assert (permit.node, permit.plugins) == ("n1", ("Fickle",))

    driver.delete(pod(CHOSEN))

    assert driver.core.permit_of(uid) is None
    assert driver.core.cluster.cache.pod_count == 0


def test_pod_goes_on_waiting_for_its_permit_when_only_its_labels_change() -> None:
    driver = started(fickle("permit", WAIT))
    driver.put(pod(CHOSEN))
    driver.settle()

    driver.put(b.pod(CHOSEN).label(app="web").request(cpu="1").scheduler("default-scheduler").build())

    assert driver.core.permit_of(f"default/{CHOSEN}") is not None
    assert driver.core.cluster.cache.pod_count == 1


class WaitsForADeletion(Plugin):
    """Says no, until it hears that a node was deleted."""

    name = "WaitsForADeletion"
    seen: ClassVar[list[tuple[Any, Any]]] = []

    def filter(self, state: Any, pod: Any, node: Any) -> Status:
        return unschedulable("too many nodes")

    def hint(self, waiting: Any, old: Any, new: Any) -> Hint:
        self.seen.append((old.metadata.name, new))
        return Hint.QUEUE

    def events_to_register(self) -> list[EventRegistration]:
        return [EventRegistration(ClusterEvent(Resource.NODE, Action.DELETE), self.hint)]


@pytest.mark.parametrize("pods", [1, 2])
def test_refusal_of_one_volume_counts_while_the_refusal_of_another_is_written(pods: int) -> None:
    """Of one pod with two volumes, and of a gang with a volume each: called off, it would be tried again at once, as often as both are refused."""
    driver = Driver()
    driver.start()
    claims = [storage.claim(f"c{i}") for i in range(2)]
    driver.put(storage.storage_class(), b.node("n1").build(), b.pod_group("g", min_count=pods), *claims)
    if pods == 1:
        driver.put(b.pod("p").scheduler("default-scheduler").pvc("c0").pvc("c1").build())
    else:
        driver.put(
            *(
                b.pod(f"p{i}").scheduler("default-scheduler").group("g").pvc(f"c{i}").build()
                for i in range(pods)
            )
        )
    driver.settle()

    driver.put(claims[0])
    driver.attempt()
    driver.put(claims[1])
    (given_up,) = driver.commit()

    assert [type(body) for _, body in given_up.outcomes if not isinstance(body, Nominated)] == [
        AttemptError
    ] * pods
    assert driver.settle() == 0
    due = driver.next_due()
    assert due is not None
    assert due > driver.now


def test_deletion_of_a_node_wakes_those_whose_plugin_waits_for_it_in_its_own_record() -> None:
    seen = WaitsForADeletion.seen
    seen.clear()
    driver = started(WaitsForADeletion)
    driver.put(pod(CHOSEN))
    driver.settle()
    driver.advance(seconds=10)
    attempts = driver.core.attempts
    driver.put(b.node("n2").capacity(cpu="4").build())
    assert driver.core.attempts == attempts

    driver.delete(b.node("n2").build())
    driver.settle()

    assert seen == [("n2", None)]
    assert driver.core.attempts == attempts + 1
