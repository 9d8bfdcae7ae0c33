"""What only wide stories have: a second namespace, a second profile, node groups with a minimum, and kube-scheduler's own way.

    story = widened(story)          by lots of its own, so that the story is the same beside that

Whose objects are elsewhere follows from their names, so that a group and its pods, or an owner and what it owns, stay together.
"""

from __future__ import annotations

import random
import re
from typing import Any

from msgspec.structs import replace

from tests.simulation.claiming import SLOW
from tests.simulation.steps import AnyStep, Apply, Configure, Delete, Edit, SetCondition, Story
from tidelog.api.objects import Object, Pod

NAMESPACE, TEAM = "default", "team"
FIRST, SECOND = "default-scheduler", "second"
UPSTREAM = 0.2
"""Share of the stories that go kube-scheduler's way."""


def widened(story: Story) -> Story:
    """The story with some of that in it."""
    dice = random.Random(f"widening {story.seed}")
    moved, second, upstream = dice.random() < 0.5, dice.random() < 0.4, dice.random() < UPSTREAM
    widening = _Widening(story.seed, moved=moved, second=second, upstream=upstream)
    actors = _with_minimum(story.actors, dice)
    return replace(
        story,
        configuration=widening.configuration(story.configuration),
        actors=_slow_to_refuse(actors) if upstream else actors,
        steps=tuple(map(widening.step, story.steps)),
    )


class _Widening:
    def __init__(self, seed: int, *, moved: bool, second: bool, upstream: bool) -> None:
        self._seed = seed
        self._moved = moved
        self._second = second
        self._upstream = upstream

    def step(self, step: AnyStep) -> AnyStep:
        match step:
            case Apply():
                return replace(step, objects=tuple(map(self._object, step.objects)))
            case Delete():
                return replace(step, keys=tuple(map(self._key, step.keys)))
            case Edit() | SetCondition():
                return replace(step, key=self._key(step.key))
            case Configure():
                return replace(step, configuration=self.configuration(step.configuration))
            case _:
                return step

    def configuration(self, configuration: dict[str, Any]) -> dict[str, Any]:
        """In the shape of its file."""
        profiles = configuration["profiles"]
        if self._second:
            plugins = profiles[0].get("plugins", {})
            unscored = {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}}
            first = {**profiles[0], "schedulerName": FIRST}
            profiles = [first, {**first, "schedulerName": SECOND, "plugins": {**plugins, **unscored}}]
        section = configuration["tidelog"]
        if self._upstream:
            section = {**section, "compat": "upstream"}
        return {**configuration, "profiles": profiles, "tidelog": section}

    def _object(self, obj: Object) -> Object:
        meta = obj.metadata
        if meta.namespace == NAMESPACE and self._is_elsewhere(meta.name):
            obj = replace(obj, metadata=replace(meta, namespace=TEAM))
        if self._second and isinstance(obj, Pod) and self._lot("profile", meta.name) < 0.5:
            obj = replace(obj, spec=replace(obj.spec, scheduler_name=SECOND))
        return obj

    def _key(self, key: str) -> str:
        kind, namespace, name = key.split("/")
        return f"{kind}/{TEAM}/{name}" if namespace and self._is_elsewhere(name) else key

    def _is_elsewhere(self, name: str) -> bool:
        return self._moved and self._lot("namespace", name) < 0.4

    def _lot(self, what: str, name: str) -> float:
        """The same for what belongs together: `app1`, and the pods `app1-0`, …"""
        found = re.match(r"[a-z]+\d*", name)
        return random.Random(f"{what} {self._seed} {found and found[0]}").random()


def _with_minimum(actors: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    autoscaler = actors.get("clusterAutoscaler")
    if autoscaler is None:
        return actors
    groups = [{**group, "min": dice.choice([0, 1])} for group in autoscaler["nodeGroups"]]
    return {**actors, "clusterAutoscaler": {**autoscaler, "nodeGroups": groups}}


def _slow_to_refuse(actors: dict[str, Any]) -> dict[str, Any]:
    """As kube-scheduler does, a group whose binding fails is tried again at once, again and again (docs/queue.md): as fast as volumes are refused."""
    volumes = actors.get("volumeController", {})
    if "refuses" not in volumes:
        return actors
    return {**actors, "volumeController": {**volumes, "provisionSeconds": SLOW}}
