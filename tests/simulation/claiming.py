"""Claims in wide stories: volumes that are bound, or made, when their pod has a node, and devices.

    story = claiming(story)         by lots of its own, so that a story without claims is the same, and one with them the same beside that

Whether a pod has claims follows from its app's name, so that all pods of an app are alike. Its volume and devices come with it, or late, are taken from it
now and then, and who binds volumes and makes claims may be slow, refuse, or not be there.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from tests.simulation.steps import AnyStep, Apply, Configure, Delete, Story
from tidelog.api.objects import ClaimVolume, Node, Object, Pod, PodResourceClaim, Volume
from tidelog.testing import builders as b
from tidelog.testing import devices as d
from tidelog.testing import storage as s

CLAIMED = 0.3
"""Share of the wide stories that have claims."""
LOCAL, MADE, ZONAL, SOON = "local", "fast", "zonal", "soon"
"""Storage classes: volumes that are there; those that are made for a node, anywhere or in one zone; those that need no pod."""
CLASSES = (s.local_class(LOCAL), s.storage_class(MADE), s.storage_class(ZONAL, zones=["a"]), s.storage_class(SOON, mode="Immediate"))  # fmt: skip
SHARED, TEMPLATE = "shared", "made"
NAMESPACE, TEAM = "default", "team"
SLOW = 8
"""Seconds until a volume is made, or refused, by who is slow."""


def claiming(story: Story) -> Story:
    """The story with some of that in it."""
    dice = random.Random(f"claims {story.seed}")
    if dice.random() >= CLAIMED:
        return story
    claims = _Claims(dice)
    steps = [step for old in story.steps for step in claims.step(old)]
    first = next((i + 1 for i, step in enumerate(steps) if isinstance(step, Apply)), 0)
    setting: list[Object] = [
        *map(nameless, CLASSES),
        d.device_class(),
        *(claims.volume() for _ in range(dice.randint(0, 5))),
    ]
    request = d.request(count=dice.randint(1, 2))
    setting += [d.template(TEMPLATE, request, namespace=name) for name in (NAMESPACE, TEAM)]
    for _ in range(dice.randint(3, 10)):
        place = dice.randrange(first, len(steps) + 1)
        steps[place:place] = [claims.happens()]
    steps[first:first] = [Apply(objects=tuple(setting), settle=dice.random() < 0.5)]
    configuration, actors = claims.configuration(story.configuration), claims.actors()
    if "refuses" in actors.get("volumeController", ()):
        configuration = patient(configuration)
        steps = [
            replace(step, configuration=patient(step.configuration)) if isinstance(step, Configure) else step
            for step in steps
        ]
    return replace(story, configuration=configuration, actors={**story.actors, **actors}, steps=tuple(steps))


def patient(configuration: dict[str, Any]) -> dict[str, Any]:
    """With the longest backoff that is the default: pods whose volumes are refused for ever are tried for ever, and with each all who wait for their room."""
    return {name: value for name, value in configuration.items() if name != "podMaxBackoffSeconds"}


class _Claims:
    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._kinds: dict[str, tuple[str, str]] = {}
        """App → the class of its pods' volumes, and where their devices come from; empty: they have none."""
        self._seen: set[str] = set()
        """Pods and nodes whose claims and slices were made."""
        self._made: list[str] = []
        """Keys of what may be taken away."""
        self._slices: list[str] = []
        self._volumes = 0
        self._bind_timeout = dice.choice([3, 20, 600])

    # --- who answers ----------------------------------------------------------------------------------------------------

    def actors(self) -> dict[str, Any]:
        """In the shape of the file for `--actors`."""
        dice = self._dice
        volumes: dict[str, Any] = {"provisionSeconds": dice.choice([0, 1, SLOW])}
        for name in ("refuses", "silent"):
            if dice.random() < 0.15:
                volumes[name] = [dice.choice([MADE, ZONAL])]
        found: dict[str, Any] = {"volumeController": volumes} if dice.random() < 0.9 else {}
        if dice.random() < 0.9:
            found["claimController"] = {}
        return found

    def configuration(self, configuration: dict[str, Any]) -> dict[str, Any]:
        """In the shape of its file."""
        args = {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": self._bind_timeout}}
        profiles = [
            {**profile, "pluginConfig": [*profile.get("pluginConfig", ()), args]}
            for profile in configuration["profiles"]
        ]
        return {**configuration, "profiles": profiles}

    # --- what there is --------------------------------------------------------------------------------------------------

    def step(self, step: AnyStep) -> Iterator[AnyStep]:
        """The step with the claims of the pods in it, and what comes besides."""
        match step:
            case Apply():
                early: list[Object] = []
                late: list[Object] = []
                objects = [self._with_claims(obj, early, late) for obj in step.objects]
                yield replace(step, objects=(*early, *objects))
                if late:
                    yield Apply(objects=tuple(late), settle=self._dice.random() < 0.5)
            case Configure():
                yield replace(step, configuration=self.configuration(step.configuration))
            case Delete():
                yield step
                left = [key for key in self._made if self._is_of(key, step.keys)]
                if left and self._dice.random() < 0.4:
                    yield Delete(keys=tuple(left), settle=self._dice.random() < 0.5)
            case _:
                yield step

    def _is_of(self, key: str, pods: Sequence[str]) -> bool:
        name = key.rpartition("/")[2]
        return any(name.startswith(f"{pod.rpartition('/')[2]}-") for pod in pods if pod.startswith("Pod/"))

    def _with_claims(self, obj: Object, early: list[Object], late: list[Object]) -> Object:
        name = obj.metadata.name
        if isinstance(obj, Node):
            if name not in self._seen:
                early.append(self._slice(name))
            self._seen.add(name)
            return obj
        if not isinstance(obj, Pod) or obj.spec.node_name:
            return obj
        found = re.match(r"[a-z]+\d*", name)
        app = found[0] if found else name
        storage, devices = self._kinds.setdefault(app, self._kind())
        is_new = name not in self._seen
        self._seen.add(name)
        spec, claims = obj.spec, list[Object]()
        if storage:
            claim = f"{name}-data"
            volume = Volume(name="data", persistent_volume_claim=ClaimVolume(claim_name=claim))
            spec = replace(spec, volumes=(*spec.volumes, volume))
            claims.append(nameless(s.claim(claim, self._dice.choice(["1Gi", "2Gi"]), storage)))
        if devices == TEMPLATE:
            spec = replace(
                spec,
                resource_claims=(PodResourceClaim(name="gpu", resource_claim_template_name=TEMPLATE),),
            )
        elif devices:
            claim = f"{app}-gpu" if devices == SHARED else f"{name}-gpu"
            spec = replace(spec, resource_claims=(PodResourceClaim(name="gpu", resource_claim_name=claim),))
            if devices != SHARED or claim not in self._seen:
                claims.append(d.claim(claim, d.request(count=self._dice.choice([1, 1, 2]))))
            self._seen.add(claim)
        if is_new and claims:
            (late if self._dice.random() < 0.15 else early).extend(claims)
            self._made += [f"{type(claim).__name__}/{NAMESPACE}/{claim.metadata.name}" for claim in claims]
        return replace(obj, spec=spec)

    def _kind(self) -> tuple[str, str]:
        dice = self._dice
        storage = dice.choice(["", LOCAL, MADE, MADE, ZONAL, SOON]) if dice.random() < 0.7 else ""
        devices = dice.choice(["own", "own", SHARED, TEMPLATE]) if dice.random() < 0.5 else ""
        return storage, devices

    def _slice(self, node: str, generation: int = 1) -> Object:
        name = f"slice-{node}"
        if generation == 1:
            self._slices.append(node)
        devices = [f"gpu{i}" for i in range(self._dice.randint(0, 3))]
        return d.resource_slice(name, devices, node=node, generation=generation)

    def volume(self) -> Object:
        """One that is there, of one node, one zone, or everywhere."""
        dice = self._dice
        self._volumes += 1
        on = dice.choice([{b.HOSTNAME: f"n{dice.randint(1, 5)}"}, {b.ZONE: dice.choice("abc")}, None])
        name = f"pv{self._volumes}"
        self._made.append(f"PersistentVolume//{name}")
        size, storage_class = dice.choice(["1Gi", "2Gi", "5Gi"]), dice.choice([LOCAL, LOCAL, MADE])
        return nameless(s.volume(name, size, storage_class, on=on))

    # --- what happens -----------------------------------------------------------------------------------------------------

    def happens(self) -> AnyStep:
        """A volume comes, a claim or a volume goes, a node has other devices."""
        dice = self._dice
        settle = dice.random() < 0.5
        kind = dice.randrange(4)
        if kind == 0 and self._made:
            return Delete(keys=(dice.choice(self._made),), settle=settle)
        if kind == 1 and self._slices:
            return Apply(objects=(self._slice(dice.choice(self._slices), dice.randint(2, 9)),), settle=settle)
        return Apply(objects=(self.volume(),), settle=settle)


def nameless(obj: Object) -> Object:
    """As a client writes it: it gets its uid when it is there."""
    return replace(obj, metadata=replace(obj.metadata, uid=""))
