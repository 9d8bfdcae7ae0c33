"""Random stories: what happens to a small cluster in some minutes, from a seed.

A story has a few themes (spread, groups, budgets, …), which decide what its pods ask for; nodes come and go, clients err and faults strike in all of
them. It is made without running anything: the teller remembers what was asked for, never what came of it, so that half of its
requests come too late, twice, or about something that is gone. That is meant.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from tests.simulation.attaching import attaching
from tests.simulation.claiming import claiming
from tests.simulation.plugins import SLOW, SlowPermit
from tests.simulation.steps import (
    Advance,
    AnyStep,
    Apply,
    ClockJump,
    Compact,
    Configure,
    CrashAt,
    Damage,
    Delete,
    DiskFull,
    Edit,
    FailSync,
    FailWrites,
    Kill,
    Manifest,
    Pause,
    PowerLoss,
    Reimport,
    Repair,
    Restart,
    SetCondition,
    StealLock,
    Stop,
    Story,
    Tamper,
    Tampering,
)
from tests.simulation.widening import widened
from tidelog.api.objects import Object, PodGroup, Workload
from tidelog.api.times import NANOS, format_time
from tidelog.testing import builders as b
from tidelog.testing.virtual_time import START

ZONE, RACK = b.ZONE, b.RACK
ZONES, RACKS = "abc", "xy"
TAINT = "dedicated"
PROVISIONING, PREEMPTION = "NodeProvisioningFailed", "PreemptionFailed"
LARGE = 10
"""Every so many-th story is larger."""
BIRTHS = 0.06
"""Share of the stories that begin with power losses."""
TAMPERED = 0.3
"""Share of the stories on the real store in which something is done to the log's files."""
COMPACTED = 1 / 6
"""Share of the stories whose log is compacted now and then."""
GATES = {
    "PodTopologySpreadFallbackMode": True,
    "MinDomainsInPodTopologySpread": True,
    "SchedulerQueueingHints": True,
    "TopologyAwareWorkloadScheduling": True,
    "WorkloadBasicPolicyDesiredCount": True,
    "DisruptionPolicyInPriorityClass": True,
}
THEMES = ("spread", "fallback", "affinity", "preemption", "groups", "ports", "gates", "slow", "particular")
GARBAGE = (
    b"",
    b"\x00\xff\xfe",
    b"apiVersion: v1\nkind: Pod\nmetadata: {name: Bad_Name}\nspec: {containers: []}\n",
    b"apiVersion: v1\nkind: Node\nmetadata: {name: n0}\nstatus: {allocatable: {cpu: lots}}\n",
    b"apiVersion: v1\nkind: Nonsense\nmetadata: {name: x}\n",
    b"{" * 200,
    b"- a\n- [",
    "apiVersion: v1\nkind: Pod\nmetadata: {name: \u202eevil}\n".encode(),
)


def make_story(seed: int, *, wide: bool = False) -> Story:
    """The story of this seed: always the same one. Costs some milliseconds.

    A wide one has in it what only the product's own store and no narrow one has; without it, it is the same.
    """
    story = _Teller(seed).tell()
    return tampered(mended(widened(attaching(claiming(story))))) if wide else story


class _App:
    """A deployment: pods after one template."""

    def __init__(self, name: str, template: b.PodBuilder) -> None:
        self.name = name
        self.template = template
        self.pods: list[str] = []
        self.made = 0


class _Teller:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = dice = random.Random(seed)
        self.owners = random.Random(f"owners {seed}")
        self.is_large = seed % LARGE == LARGE - 1
        self.themes = dice.sample(THEMES, dice.randint(1, 3))
        if dice.random() < 0.2 and "preemption" not in self.themes:
            self.themes.append("preemption")
        self.nodes: dict[str, b.NodeBuilder] = {}
        self.gone: list[b.NodeBuilder] = []
        self.apps: list[_App] = []
        self.groups: dict[str, PodGroup | Workload] = {}
        self.budgets: dict[str, Object] = {}
        self.steps: list[AnyStep] = []
        self.made = 0
        self.has_autoscaler = "fallback" in self.themes and dice.random() < 0.6
        self.timeout = dice.choice(["", "20s", "45s"]) if "fallback" in self.themes else ""

    def tell(self) -> Story:
        story = Story(seed=self.seed, configuration=self._configuration(), actors=self._actors(), steps=())
        self._begin()
        chances = self._chances()
        for _ in range(self.dice.randint(110, 170) if self.is_large else self.dice.randint(25, 70)):
            (happens,) = self.dice.choices([c for c, _ in chances], [weight for _, weight in chances])
            happens()
        self._end()
        self._compact()
        steps = (*self._birth(), *self.steps)
        return Story(seed=self.seed, configuration=story.configuration, actors=story.actors, steps=steps)

    def _birth(self) -> Sequence[AnyStep]:
        """Now and then power is lost while the log is being made. By lots of its own, so that it changes nothing else."""
        dice = random.Random(f"birth {self.seed}")
        crashes = dice.randint(1, 4) if dice.random() < BIRTHS else 0
        return [
            CrashAt(nth=dice.randint(1, 4), before=dice.random() < 0.5, back_after=0.1)
            for _ in range(crashes)
        ]

    def _compact(self) -> None:
        """Somebody makes the log smaller. By lots of its own, too."""
        dice = random.Random(f"compaction {self.seed}")
        times = dice.randint(2, 4) if dice.random() < COMPACTED else 0
        for _ in range(times):
            place = dice.randrange(len(self.steps) + 1)
            self.steps[place:place] = _compaction(dice)

    def _chances(self) -> Sequence[tuple[Callable[[], None], float]]:
        """What may happen, and how often."""
        has = self.themes.__contains__
        return (
            (self.scale_up, 14),
            (self.scale_down, 6),
            (self.new_app, 3),
            (self.advance, 16),
            (self.new_node, 4),
            (self.change_node, 9),
            (self.remove_node, 4),
            (self.flap_node, 2),
            (self.edit_pod, 6),
            (self.bind_elsewhere, 2),
            (self.finish_pod, 2),
            (self.replace_pod, 1.5),
            (self.condition, 5 if has("fallback") else 0.5),
            (self.ungate, 6 if has("gates") else 0),
            (self.group, 7 if has("groups") else 0),
            (self.change_group, 4 if has("groups") else 0),
            (self.budget, 5 if has("preemption") else 0),
            (self.preempt, 9 if has("preemption") else 0),
            (self.race, 5),
            (self.just_in_time, 5),
            (self.invalid, 1.5),
            (self.repeat, 2),
            (self.configure, 1),
            (self.jump, 1),
            (self.fault, 9),
        )

    # --- the setting --------------------------------------------------------------------------------------------------

    def _configuration(self) -> dict[str, Any]:
        """In the shape of its file."""
        dice = self.dice
        spread = {"nodeProvisioningTimeout": self.timeout} if self.timeout else {}
        profile: dict[str, Any] = {"pluginConfig": [{"name": "PodTopologySpread", "args": spread}]}
        if "slow" in self.themes:
            profile["plugins"] = {"permit": {"enabled": [{"name": SlowPermit.name}]}}
        gates = {**GATES, "SchedulerQueueingHints": dice.random() > 0.08}
        section: dict[str, Any] = {"featureGates": gates}
        if dice.random() < 0.2:
            section["partialPlacement"] = "always"
        if dice.random() < 0.2:
            section["maxFeasiblePlacements"] = 1
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "podInitialBackoffSeconds": dice.choice([1, 1, 2]),
            "podMaxBackoffSeconds": dice.choice([2, 4, 10]),
            "profiles": [profile],
            "tidelog": section,
        }

    def _actors(self) -> dict[str, Any]:
        actors: dict[str, Any] = {"nodeAgent": {"speed": self.dice.choice([3, 10, 30])}}
        if self.dice.random() < (0.75 if "preemption" in self.themes else 0.95):
            actors["disruptionController"] = {}
        if self.has_autoscaler:
            groups = [self._node_group(name) for name in ("small", "large")[: self.dice.randint(1, 2)]]
            actors["clusterAutoscaler"] = {"nodeGroups": groups, "stockoutBackoffSeconds": 30}
        return actors

    def _node_group(self, name: str) -> dict[str, Any]:
        zones = self.dice.sample(ZONES, self.dice.randint(1, 3))
        stockouts = []
        for _ in range(self.dice.randint(0, 2)):
            start, end = sorted(self.dice.sample(range(400), 2))
            times = {"start": format_time(START + start * NANOS), "end": format_time(START + end * NANOS)}
            stockouts.append({"zones": [self.dice.choice(zones)], **times})
        return {
            "name": name,
            "zones": zones,
            "max": self.dice.choice([1, 2, 4]),
            "provisioningSeconds": self.dice.choice([0, 5, 30]),
            "resources": {"cpu": "2" if name == "small" else "4", "memory": "8Gi", "pods": "110"},
            "stockouts": stockouts,
        }

    def _begin(self) -> None:
        for _ in range(self.dice.randint(8, 16) if self.is_large else self.dice.randint(2, 6)):
            self._node()
        self._apply(*(node.build() for node in self.nodes.values()))
        if "preemption" in self.themes:
            classes = (
                b.priority_class("low", 1, default=True, guarded_below=self.dice.choice([50, 200, 2000])),
                b.priority_class("middle", 100, guarded_below=self.dice.choice([None, 150, 2000])),
                b.priority_class("high", 1000, never_preempts=self.dice.random() < 0.2),
            )
            self._apply(*classes)
        for _ in range(self.dice.randint(1, 3)):
            self.new_app()
        if "preemption" in self.themes:
            for _ in range(2):
                self.scale_up()
            self._apply(b.pdb("budget0", self.dice.choice(["", "tier=a"]), max_unavailable=1))
            self.budgets["budget0"] = b.pdb("budget0", "", max_unavailable=1)
            self._add(Advance(seconds=2))

    def _end(self) -> None:
        """Often the last that happens is just what somebody waits for, while he is being tried: nothing comes after it that would wake him."""
        for _ in range(self.dice.choice([0, 1, 1, 2])):
            self.scale_up()
            self.steps[-1] = _hasty(self.steps[-1])
            self._apply(self._node().build(), settle=False)

    # --- nodes ----------------------------------------------------------------------------------------------------------

    def _node(self) -> b.NodeBuilder:
        dice = self.dice
        self.made += 1
        node = b.node(f"n{self.made}").capacity(
            cpu=dice.choice(["1", "2", "3", "4"]), memory="8Gi", pods=dice.choice(["3", "110"])
        )
        if dice.random() < 0.93:
            node = node.label({ZONE: dice.choice(ZONES)})
        if dice.random() < 0.9:
            node = node.label({RACK: dice.choice(RACKS)})
        if "particular" in self.themes and dice.random() < 0.4:
            node = node.label(disk=dice.choice(["ssd", "hdd"]))
        if "particular" in self.themes and dice.random() < 0.3:
            node = node.taint(TAINT, dice.choice(["gpu", "batch"]))
        self.nodes[node.meta.name] = node
        return node

    def new_node(self) -> None:
        if self.gone and self.dice.random() < 0.4:
            node = self.gone.pop()
            self.nodes[node.meta.name] = node
        else:
            node = self._node()
        self._apply(node.build())

    def _some_node(self) -> b.NodeBuilder | None:
        return self.dice.choice(list(self.nodes.values())) if self.nodes else None

    def change_node(self) -> None:
        """Cordoned, uncordoned, relabelled, tainted, resized."""
        node = self._some_node()
        if node is None:
            return
        kind = self.dice.randrange(6)
        if kind <= 1:
            plain = b.node(node.meta.name).label(node.meta.labels).capacity(node.status.allocatable)
            node = plain if node.taints else node.cordon()
        elif kind == 2:
            node = node.label({ZONE: self.dice.choice(ZONES)})
        elif kind == 3:
            node = node.label({RACK: self.dice.choice(RACKS), "disk": self.dice.choice(["ssd", "hdd"])})
        elif kind == 4:
            node = node.taint(TAINT, "gpu", self.dice.choice(["NoSchedule", "PreferNoSchedule"]))
        else:
            node = node.capacity(cpu=self.dice.choice(["1", "2", "3", "5"]))
        self.nodes[node.meta.name] = node
        self._apply(node.build())

    def remove_node(self) -> None:
        if len(self.nodes) > 1:
            name = self.dice.choice(list(self.nodes))
            self.gone.append(self.nodes.pop(name))
            self._delete(f"Node//{name}")

    def flap_node(self) -> None:
        """Gone, and back at once."""
        node = self._some_node()
        if node is not None:
            self._delete(f"Node//{node.meta.name}", settle=False)
            self._apply(node.build(), settle=self._settles())

    # --- pods -----------------------------------------------------------------------------------------------------------

    def new_app(self) -> None:
        dice = self.dice
        name = f"app{len(self.apps)}"
        pod = (
            b.pod(name)
            .label(app=name, tier=dice.choice("ab"))
            .request(cpu=dice.choice(["200m", "500m", "1", "2"]))
        )
        if dice.random() < 0.3:
            pod = pod.request(memory=dice.choice(["1Gi", "3Gi"]))
        for theme in self.themes:
            if dice.random() < 0.7:
                pod = getattr(self, f"_with_{theme}")(pod, name)
        self.apps.append(_App(name, self._owned(pod, name)))
        self._scale(self.apps[-1], dice.randint(1, 5))

    def _owned(self, pod: b.PodBuilder, name: str) -> b.PodBuilder:
        """Where budgets count, most pods have an owner that says how many there should be: else nothing is allowed."""
        if "preemption" not in self.themes or self.owners.random() < 0.2:
            return pod
        owner = b.replica_set(name, f"app={name}")
        replicas = self.owners.choice([2, 4, 6])
        self._apply(replace(owner, spec=replace(owner.spec, replicas=replicas)), settle=False)
        return pod.owner("ReplicaSet", name)

    def _with_spread(self, pod: b.PodBuilder, name: str) -> b.PodBuilder:
        more: dict[str, Any] = {}
        if self.dice.random() < 0.3:
            more["min_domains"] = self.dice.choice([2, 3])
        if self.dice.random() < 0.2:
            more["node_taints_policy"] = "Honor"
        if self.dice.random() < 0.2:
            more["node_affinity_policy"] = "Ignore"
        key = self.dice.choice([ZONE, ZONE, RACK, b.HOSTNAME])
        pod = pod.spread(key, f"app={name}", max_skew=self.dice.choice([1, 1, 2]), **more)
        if self.dice.random() < 0.2:
            pod = pod.spread(b.HOSTNAME if key != b.HOSTNAME else ZONE, f"app={name}", max_skew=2)
        return pod

    def _with_fallback(self, pod: b.PodBuilder, name: str) -> b.PodBuilder:
        if pod.spec.topology_spread_constraints:
            return pod
        criteria = self.dice.choice([(PROVISIONING,), (PREEMPTION,), (PROVISIONING, PREEMPTION)])
        more: dict[str, Any] = {}
        if self.dice.random() < 0.3:
            more["min_domains"] = self.dice.choice([2, 3])
        return pod.spread(ZONE, f"app={name}", fallback=criteria, **more)

    def _with_affinity(self, pod: b.PodBuilder, name: str) -> b.PodBuilder:
        other = self.dice.choice([name, name, "app0", "app1"])
        key = self.dice.choice([b.HOSTNAME, ZONE, RACK])
        if self.dice.random() < 0.6:
            return pod.pod_anti_affinity(key, f"app={other}")
        return pod.pod_affinity(key, f"app={other}")

    def _with_preemption(self, pod: b.PodBuilder, name: str) -> b.PodBuilder:
        pod = pod.priority_class(self.dice.choice(["low", "low", "middle", "high"]))
        return pod.grace(self.dice.choice([1, 10, 30]))

    def _with_groups(self, pod: b.PodBuilder, name: str) -> b.PodBuilder:
        return pod

    def _with_ports(self, pod: b.PodBuilder, name: str) -> b.PodBuilder:
        return pod.port(self.dice.choice([8080, 8080, 9090]))

    def _with_gates(self, pod: b.PodBuilder, name: str) -> b.PodBuilder:
        return pod.gate("example.com/wait")

    def _with_slow(self, pod: b.PodBuilder, name: str) -> b.PodBuilder:
        return pod.label({SLOW: "yes"})

    def _with_particular(self, pod: b.PodBuilder, name: str) -> b.PodBuilder:
        kind = self.dice.randrange(4)
        if kind == 0:
            return pod.node_selector(disk="ssd")
        if kind == 1:
            return pod.node_affinity(f"{ZONE} in (a,b)", "disk=hdd")
        if kind == 2:
            return pod.tolerate(TAINT, "gpu")
        return pod.node_affinity(f"{ZONE} notin (a)")

    def scale_up(self) -> None:
        if self.apps:
            self._scale(self.dice.choice(self.apps), self.dice.choice([1, 1, 2, 3, 5]))

    def _scale(self, app: _App, count: int) -> None:
        names = [f"{app.name}-{app.made + i}" for i in range(count)]
        app.made += count
        app.pods += names
        self._apply(*(app.template.named(name).build() for name in names))

    def scale_down(self) -> None:
        app = self.dice.choice(self.apps)
        if app.pods:
            going = self.dice.sample(app.pods, min(len(app.pods), self.dice.randint(1, 2)))
            app.pods = [name for name in app.pods if name not in going]
            grace = self.dice.choice([None, None, 0, 2])
            self._delete(*(f"Pod/default/{name}" for name in going), grace=grace)

    def _some_pod(self) -> str:
        names = [name for app in self.apps for name in app.pods]
        return self.dice.choice(names) if names else "nobody"

    def edit_pod(self) -> None:
        key = f"Pod/default/{self._some_pod()}"
        kind = self.dice.randrange(6)
        if kind == 0:
            self._add(Edit(key=key, labels={"app": self.dice.choice(self.apps).name}, settle=self._settles()))
        elif kind == 1:
            self._add(
                Edit(key=key, labels={"tier": self.dice.choice("ab"), SLOW: ""}, settle=self._settles())
            )
        elif kind == 2:
            self._add(Edit(key=key, labels={"note": str(self.dice.randrange(5))}, settle=self._settles()))
        elif kind == 3:
            self._add(Edit(key=key, tolerate=TAINT, settle=self._settles()))
        else:
            self._add(Edit(key=key, stale=True, settle=self._settles()))

    def bind_elsewhere(self) -> None:
        """Another scheduler binds a pod: one of its own, or one of ours."""
        node = self.dice.choice([*self.nodes, *(gone.meta.name for gone in self.gone), "nowhere"])
        if self.dice.random() < 0.5:
            self._add(Edit(key=f"Pod/default/{self._some_pod()}", node=node, settle=self._settles()))
            return
        self.made += 1
        pod = b.pod(f"guest-{self.made}").label(app=self.dice.choice(self.apps).name).request(cpu="500m")
        self._apply(pod.on(node).build())

    def finish_pod(self) -> None:
        phase = self.dice.choice(["Succeeded", "Failed", "Running"])
        self._add(Edit(key=f"Pod/default/{self._some_pod()}", phase=phase, settle=self._settles()))

    def replace_pod(self) -> None:
        """Deleted and created again under its name, now and then under its uid."""
        app = self.dice.choice(self.apps)
        if not app.pods:
            return
        name = self.dice.choice(app.pods)
        again = app.template.named(name)
        if self.dice.random() < 0.5:
            again = again.uid(f"fixed-{name}")
        self._delete(f"Pod/default/{name}", grace=0, settle=False)
        self._apply(again.build())

    def ungate(self) -> None:
        self._add(Edit(key=f"Pod/default/{self._some_pod()}", ungate=True, settle=self._settles()))

    def condition(self) -> None:
        status = self.dice.choice(["True", "False", "False", "Unknown"])
        self._add(
            SetCondition(
                key=f"Pod/default/{self._some_pod()}",
                type=self.dice.choice(["NodeProvisioningInProgress"] * 4 + ["example.com/Checked"]),
                status=status,
                reason="Somebody",
                settle=self._settles(),
            )
        )

    # --- groups and budgets ---------------------------------------------------------------------------------------------

    def group(self) -> None:
        """A gang or a basic group with its pods; some come late."""
        dice = self.dice
        name = f"group{len(self.groups)}"
        size = dice.randint(2, 4)
        minimum = dice.choice([None, size, size, max(1, size - 1)])
        level = dice.choice([None, RACK, ZONE, RACK])
        pod = b.pod(name).label(app=name).request(cpu=dice.choice(["500m", "1"]))
        for theme in self.themes:
            if theme not in ("groups", "preemption") and dice.random() < 0.25:
                pod = getattr(self, f"_with_{theme}")(pod, name)
        if dice.random() < 0.5:
            self.groups[name] = b.pod_group(name, min_count=minimum, level=level)
            pod = pod.group(name)
        else:
            wanted = size + dice.choice([0, 0, 1]) if minimum is None and dice.random() < 0.7 else None
            group = b.workload_group("workers", min_count=minimum, desired_count=wanted, level=level)
            self.groups[name] = b.workload(name, group)
            pod = pod.workload(name, "workers", dice.choice(["", "", "r0"]))
        app = _App(name, self._owned(pod, name))
        self.apps.append(app)
        if dice.random() < 0.8:
            self._apply(self.groups[name])
            self._scale(app, size - dice.choice([0, 0, 1]))
        else:
            self._scale(app, size)
            self._apply(self.groups[name])

    def change_group(self) -> None:
        """It grows, loses its object or gets it back, or asks for something else."""
        if not self.groups:
            return
        name = self.dice.choice(list(self.groups))
        group = self.groups[name]
        kind = self.dice.randrange(4)
        if kind == 3 and isinstance(group, PodGroup):
            minimum, level = self.dice.choice([None, 1, 2]), self.dice.choice([None, RACK, ZONE])
            self.groups[name] = b.pod_group(name, min_count=minimum, level=level)
            self._apply(self.groups[name])
        elif kind == 0:
            key = f"PodGroup/default/{name}" if isinstance(group, PodGroup) else f"Workload/default/{name}"
            self._delete(key)
        elif kind == 1:
            self._apply(group)
        else:
            app = next(app for app in self.apps if app.name == name)
            self._scale(app, self.dice.randint(1, 2))

    def preempt(self) -> None:
        """Pods come that are more important than most."""
        self.made += 1
        chosen = self.dice.choice(["middle", "middle", "high"])
        pod = b.pod("urgent").label(app="urgent", tier=self.dice.choice("ab")).priority_class(chosen)
        pod = self._owned(pod, "urgent")
        pod = pod.request(cpu=self.dice.choice(["500m", "1", "2"])).grace(1)
        self._apply(*(pod.named(f"urgent-{self.made}-{i}").build() for i in range(self.dice.randint(1, 4))))

    def budget(self) -> None:
        """A new one, another one of that name, one gone, or a status written by somebody who knows nothing of late."""
        dice = self.dice
        name = f"budget{dice.randrange(3)}"
        if name in self.budgets and dice.random() < 0.3:
            del self.budgets[name]
            self._delete(f"PodDisruptionBudget/default/{name}")
            return
        selector = dice.choice([f"app={dice.choice(self.apps).name}", "tier=a", "tier=b", ""])
        limit: dict[str, Any] = dice.choice(
            [
                {"min_available": 1},
                {"min_available": 2},
                {"max_unavailable": 1},
                {"max_unavailable": 0},
                {"min_available": "50%"},
            ]
        )
        budget = b.pdb(name, selector, **limit)
        if dice.random() < 0.2:
            budget = b.pdb(name, selector, allowed=dice.randint(0, 2), **limit)
        self.budgets[name] = budget
        self._apply(budget)

    # --- clients that err -----------------------------------------------------------------------------------------------

    def invalid(self) -> None:
        kind = self.dice.randrange(4)
        if kind == 0:
            self._add(Manifest(data=self.dice.choice(GARBAGE), settle=self._settles()))
        elif kind == 1:
            bad = b.pod("bad").request(cpu="-1").spread("", max_skew=0).build()
            self._apply(b.node("unseen").build(), bad)
        elif kind == 2:
            node = self._node()
            self.gone.append(self.nodes.pop(node.meta.name))
            other = b.pod(self._some_pod()).request(
                cpu="17"
            )  # Refused, if it is there: that cannot be changed.
            self._apply(node.build(), other.build())
        else:
            self._delete("Pod/default/never-was", f"Pod/default/{self._some_pod()}")

    def repeat(self) -> None:
        """A request that was sent before is sent again, perhaps long after."""
        sent = [step for step in self.steps if isinstance(step, Apply | Delete | Edit | SetCondition)]
        if sent:
            self._add(self.dice.choice([sent[-1], self.dice.choice(sent)]))

    def race(self) -> None:
        """Several things at once."""
        before = len(self.steps)
        for _ in range(self.dice.randint(2, 4)):
            happens = self.dice.choice(
                [self.scale_up, self.scale_up, self.scale_down, self.change_node, self.remove_node, self.new_node, self.edit_pod,
                 self.bind_elsewhere]
            )  # fmt: skip
            happens()
        for i in range(before, len(self.steps) - 1):
            step = self.steps[i]
            if isinstance(step, Apply | Delete | Edit):
                self.steps[i] = _hasty(step)

    def just_in_time(self) -> None:
        """While somebody is being tried just that happens which he may have waited for; and then nothing that would wake him."""
        before = len(self.steps)
        self.scale_up()
        happens = self.dice.choice(
            [self.new_node, self.change_node, self.change_node, self.scale_down, self.edit_pod, self.replace_pod, self.condition]
        )  # fmt: skip
        happens()
        self.steps[before:] = map(_hasty, self.steps[before:])
        self._add(SetCondition(key="Pod/default/never-was", type="example.com/Checked", status="True"))

    # --- time, configuration, faults --------------------------------------------------------------------------------------

    def advance(self) -> None:
        self._add(Advance(seconds=self.dice.choice([0.3, 1, 2, 3, 5, 12, 31, 70])))

    def jump(self) -> None:
        self._add(ClockJump(seconds=self.dice.choice([-3600, -5, -0.5, 2, 40, 700])))

    def configure(self) -> None:
        self._add(Configure(configuration=self._configuration(), settle=self._settles()))

    def fault(self) -> None:
        dice = self.dice
        back = dice.choice([0.1, 1, 5, 40])
        fault: Sequence[AnyStep] = dice.choice(
            [
                (Kill(back_after=back),),
                (Kill(back_after=None), Advance(seconds=back), Restart()),
                (Kill(process="standby", back_after=back),),
                (PowerLoss(back_after=back),),
                (PowerLoss(back_after=back),),
                (Pause(seconds=back),),
                (Pause(process="standby", seconds=back),),
                (StealLock(seconds=dice.choice([1, 10])),),
                (DiskFull(seconds=dice.choice([0.5, 3, 20])),),
                (FailWrites(count=dice.randint(1, 3)),),
                (FailSync(),),
                (CrashAt(operation=dice.choice(["", "write", "sync"]), nth=dice.randint(1, 12), before=dice.random() < 0.5, back_after=back),),
                (CrashAt(nth=dice.randint(1, 4), before=dice.random() < 0.5, back_after=back),),
            ]
        )  # fmt: skip
        for step in fault:
            self._add(step)

    # --- small words ------------------------------------------------------------------------------------------------------

    def _settles(self) -> bool:
        return self.dice.random() < 0.6

    def _add(self, step: AnyStep) -> None:
        self.steps.append(step)

    def _apply(self, *objects: Object, settle: bool | None = None) -> None:
        self._add(Apply(objects=objects, settle=self._settles() if settle is None else settle))

    def _delete(self, *keys: str, grace: int | None = None, settle: bool | None = None) -> None:
        settles = self._settles() if settle is None else settle
        self._add(Delete(keys=keys, grace_period_seconds=grace, settle=settles))


def mended(story: Story) -> Story:
    """The log is damaged and repaired, or exported and imported again, at some moments of it. By lots of its own."""
    dice = random.Random(f"mending {story.seed}")
    steps = list(story.steps)
    for _ in range(dice.choice([0, 1, 1, 2])):
        place = dice.randrange(len(steps) + 1)
        steps[place:place] = _mending(dice)
    return replace(story, steps=tuple(steps))


def _mending(dice: random.Random) -> Sequence[AnyStep]:
    """Now and then something cuts it short."""
    crash = CrashAt(
        nth=dice.randint(1, 30), before=dice.random() < 0.5, back_after=1.0, kills=dice.random() < 0.5
    )
    breaks: list[Sequence[AnyStep]] = [(), (), (crash,), (DiskFull(seconds=3),), (FailSync(),)]
    broken = dice.choice(breaks)
    follows, place = dice.random() < 0.6, dice.random()
    damages: list[Damage] = ["record", "record", "byte", "head"]
    mend = Repair(damage=dice.choice(damages), place=place, follows=follows)
    mends: list[AnyStep] = [mend, mend, Reimport(follows=follows)]
    return (*broken, dice.choice(mends))


def tampered(story: Story) -> Story:
    """In some stories somebody moves, replaces, restores or cuts the log's files while it is led. By lots of its own."""
    dice = random.Random(f"tampering {story.seed}")
    if dice.random() >= TAMPERED:
        return story
    steps = list(story.steps)
    for _ in range(dice.choice([1, 1, 2])):
        first, second = sorted(dice.randrange(len(steps) + 1) for _ in range(2))
        steps[second:second] = [_tampering(dice)]
        steps[first:first] = [Tamper(way="copied")]
    return replace(story, steps=tuple(steps))


def _tampering(dice: random.Random) -> Tamper:
    ways: list[Tampering] = ["moved", "moved", "replaced", "restored", "overwritten", "cut", "linked"]
    way = dice.choice(ways)
    files = dice.choice([("",), ("-wal",), (".head",), ("", "-wal", ".head"), ("", "-wal", "-shm", ".head")])
    if way in ("overwritten", "cut"):
        files = tuple(name for name in files if name != "-shm")  # SQLite has it in memory.
    if way == "restored":
        files = ("", "-wal", ".head")
    return Tamper(way=way, files=files, place=dice.choice([0.0, 0.5, 0.9]), seconds=dice.choice([1, 5, 20]))


def _hasty(step: AnyStep) -> AnyStep:
    """The same, without waiting for anything."""
    match step:
        case Apply():
            return Apply(objects=step.objects, settle=False)
        case Delete():
            return Delete(keys=step.keys, grace_period_seconds=step.grace_period_seconds, settle=False)
        case Edit() | SetCondition():
            return replace(step, settle=False)
        case _:
            return step


def _compaction(dice: random.Random) -> Sequence[AnyStep]:
    """While nobody runs, which is how it should be; or beside somebody who does, has lost his lock, or dies over it."""
    compact = Compact(keep=dice.choice([0, 0, 3, 20]))
    back = dice.choice([1.0, 5.0, 40.0])
    crash = CrashAt(
        nth=dice.randint(1, 14), before=dice.random() < 0.5, back_after=back, kills=dice.random() < 0.5
    )
    killed = (Kill(process="standby"), Kill())
    meanwhile = (Compact(settle=False), Restart(), Advance(seconds=dice.choice([0.005, 0.05])))
    return dice.choice(
        [
            (Stop(), compact, Restart()),
            (*killed, compact, Restart()),
            (Stop(), crash, compact, Restart()),
            (*killed, crash, compact, compact, Restart()),
            (compact,),
            (Pause(seconds=back), compact),
            (Compact(keep=compact.keep, robs_for=back),),
            (StealLock(seconds=40), Advance(seconds=8), Stop(), compact, Restart()),
            (Stop(), *meanwhile, StealLock(seconds=40), Advance(seconds=8), Stop(), compact, Restart()),
        ]
    )
