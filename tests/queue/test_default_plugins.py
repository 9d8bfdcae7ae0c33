"""Hint soundness of the default plugins together, in the real core: whatever happens, no pod that fits is left asleep.

Random clusters come from the plugins' conformance kit, which tries each plugin alone; here all of them, the preemption, the
core's own bookkeeping and the queue take part. After every record each pod in the pool is tried by brute force.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from tests.thorough import cases
from tidelog.api.objects import Object, Pod, PodSchedulingGate
from tidelog.configuration.configuration import default_configuration
from tidelog.framework.interface import CycleState
from tidelog.framework.node_info import PodInfo
from tidelog.framework.results import Feasible
from tidelog.replay.driver import Driver
from tidelog.testing.hint_soundness import HintSoundness, Sleeper
from tidelog.testing.plugin_worlds import Dice, World

STORIES = cases(40, "TIDELOG_QUEUE_HISTORIES")
Change = Callable[[], None]


class Priorities(World):
    """Pods of several priorities, so that some preempt others."""

    def pod(self, dice: Dice, name: str) -> Pod:
        made = super().pod(dice, name)
        return replace(made, spec=replace(made.spec, priority=dice.pick((-5, 0, 0, 10))))


class Story:
    """A cluster in which things happen, with some pods bound by others and some waiting for us."""

    def __init__(self, seed: int, *, upstream: bool = False) -> None:
        self.dice = Dice(seed)
        self.world = Priorities()
        self.driver = Driver()
        configuration = default_configuration(self.driver.registry)
        self.driver.start(replace(configuration, compat="upstream" if upstream else "default"))
        for name in ("default", "other"):
            self.driver.put(self.world.namespace(self.dice, name))
        for number in range(3):
            self.driver.put(self.world.node(self.dice, f"n{number}"))
        self.number = 0
        self.seen: Counter[str] = Counter()

    def step(self) -> list[Sleeper]:
        """One record, checked; then whoever may be tried is tried, now or a little later."""
        queue = self.driver.core.queue
        kind, change = self.some_change()
        check: HintSoundness[Change] = HintSoundness(queue, apply=lambda happen: happen(), fits=self.fits)
        asleep = check.step(change)
        self.seen[kind] += 1
        self.seen["waiting"] += len(queue.contents().unschedulable)
        self.seen["nominated"] += len(queue.nominator)
        # Some changes fall into an attempt. Until its outcome is committed it has no event, so nobody is tried in between.
        if self.dice.chance(30):
            self.driver.attempt()
            self.some_change()[1]()
            asleep += check.step(self.driver.commit)
        self.driver.settle()
        if self.dice.chance(40):
            self.driver.advance(seconds=self.dice.below(15))
        return asleep

    def fits(self, pod: Pod) -> bool:
        """By the filters of the pod's profile, on the cluster as the core has it."""
        core = self.driver.core
        core.cluster.snapshot.refresh(core.cluster.cache)
        found = core.frameworks[pod.spec.scheduler_name].find_feasible(CycleState(), PodInfo(pod))
        return isinstance(found, Feasible)

    def some_change(self) -> tuple[str, Change]:
        dice, put = self.dice, self.driver.put
        known = self.driver.core.objects
        nodes = [obj for key, obj in known.items() if key.startswith("Node/")]
        pods = [obj for obj in known.values() if isinstance(obj, Pod)]
        waiting = [pod for pod in pods if not pod.spec.node_name]
        bound = [pod for pod in pods if pod.spec.node_name]
        self.number += 1
        match dice.below(14):
            case 0:
                added: Object = self.world.node(dice, f"n{self.number}")
                return "node added", lambda: put(added)
            case 1 if len(nodes) > 2:
                gone = dice.pick(nodes)
                return "node deleted", lambda: self.driver.delete(gone)
            case 2 | 3:
                changed: Object = self.world.changed_node(dice, dice.pick(nodes))  # type: ignore[arg-type]
                return "node changed", lambda: put(changed)
            case 4 if bound:
                other: Object = self.world.changed_occupant(dice, dice.pick(bound))
                return "bound pod changed", lambda: put(other)
            case 5 | 6 | 7 if bound:
                left: Object = dice.pick(bound)
                return "bound pod deleted", lambda: self.driver.delete(left)
            case 8 if waiting:
                mine: Object = self.world.changed_target(dice, dice.pick(waiting))
                return "waiting pod changed", lambda: put(mine)
            case 9 if nodes:
                name = dice.pick(nodes).metadata.name
                stranger: Object = self.world.occupant(dice, f"s{self.number}", name)
                return "bound pod added", lambda: put(stranger)
            case 10 if waiting:
                promised = dice.pick(waiting)
                status = replace(promised.status, nominated_node_name=dice.pick(nodes).metadata.name)
                nominated: Object = replace(promised, status=status)
                return "pod nominated", lambda: put(nominated)
            case 11 if waiting:
                taken = dice.pick(waiting)
                place = replace(taken.spec, node_name=dice.pick(nodes).metadata.name, scheduling_gates=())
                by_hand: Object = replace(taken, spec=place)
                return "pod bound by hand", lambda: put(by_hand)
            case 12:
                label: Object = self.world.namespace(dice, dice.pick(("default", "other")))
                return "namespace changed", lambda: put(label)
            case _:
                pod = self.world.pod(dice, f"w{self.number}")
                spec = replace(pod.spec, scheduler_name="default-scheduler")
                if dice.chance(10):
                    spec = replace(spec, scheduling_gates=(PodSchedulingGate(name="g"),))
                made: Object = replace(pod, spec=spec)
                return "pod added", lambda: put(made)


def test_no_pod_that_fits_is_left_asleep() -> None:
    seen: Counter[str] = Counter()
    for seed in range(STORIES):
        story = Story(seed)
        for number in range(60):
            assert story.step() == [], f"story {seed}, step {number}"
        seen += story.seen

    assert len(seen) == 13, f"not everything happened: {sorted(seen)}"
    assert seen["waiting"] > 20 * STORIES, "hardly any pod ever waited"
    assert seen["nominated"] > 5 * STORIES, "hardly any pod was promised a place"


def test_the_check_finds_the_gaps_that_kube_scheduler_has() -> None:
    rejectors: set[str] = set()
    for seed in range(200):
        story = Story(seed, upstream=True)
        rejectors.update(name for _ in range(40) for sleeper in story.step() for name in sleeper.rejectors)
        if rejectors:
            break

    assert rejectors
