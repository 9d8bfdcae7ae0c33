"""What stories with claims have besides: devices that somebody has to attach to the node, and nodes that attach only so many volumes.

    story = attaching(story)        by lots of its own, so that a story without it is the same

A device whose binding conditions come from its driver is there for its pod when the driver has said so, which may be slow, fail, or never answer. A node's
limits come with it, or late, change, or go.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from tests.simulation.claiming import SLOW, nameless, patient
from tests.simulation.steps import AnyStep, Apply, Configure, Delete, Story
from tidelog.api.objects import Device, Node, Object, ResourceSlice
from tidelog.testing import devices as d
from tidelog.testing import storage as s

READY, BROKEN = "example.com/Attached", "example.com/Broken"
"""Conditions of devices."""
CONDITIONAL = 0.5
LIMITED = 0.5
"""Shares of the stories with claims that have these."""


def attaching(story: Story) -> Story:
    """The story with some of that in it, if it has claims."""
    if not any(isinstance(obj, ResourceSlice) for obj in _objects(story)):
        return story
    dice = random.Random(f"attaching {story.seed}")
    if dice.random() < CONDITIONAL:
        story = _conditional(story, dice)
    return _limited(story, dice) if dice.random() < LIMITED else story


def _objects(story: Story) -> Iterator[Object]:
    for step in story.steps:
        if isinstance(step, Apply):
            yield from step.objects


# --- devices --------------------------------------------------------------------------------------------------------------


def _conditional(story: Story, dice: random.Random) -> Story:
    share, timeout = dice.choice([0.5, 1.0]), dice.choice(["3s", "20s", "10m0s"])
    settings: dict[str, Any] = {"readySeconds": dice.choice([0, 1, SLOW])}
    fate = dice.random()
    if fate < 0.2:
        settings |= {"fails": [d.DRIVER], "readySeconds": SLOW}
    elif fate < 0.35:
        settings |= {"silent": [d.DRIVER]}
    actors = {"deviceDriver": settings} if dice.random() < 0.9 else {}
    args = {"name": "DynamicResources", "args": {"bindingTimeout": timeout}}

    def configured(configuration: dict[str, Any]) -> dict[str, Any]:
        profiles = [
            {**profile, "pluginConfig": [*profile.get("pluginConfig", ()), args]}
            for profile in configuration["profiles"]
        ]
        found = {**configuration, "profiles": profiles}
        return patient(found) if "fails" in settings else found

    def has_conditions(device: Device, where: str) -> bool:
        return random.Random(f"attached {story.seed} {where} {device.name}").random() < share

    def conditional(obj: Object) -> Object:
        if not isinstance(obj, ResourceSlice):
            return obj
        devices = tuple(
            replace(device, binding_conditions=(READY,), binding_failure_conditions=(BROKEN,))
            if has_conditions(device, obj.metadata.name)
            else device
            for device in obj.spec.devices
        )
        return replace(obj, spec=replace(obj.spec, devices=devices))

    def step(old: AnyStep) -> AnyStep:
        match old:
            case Apply():
                return replace(old, objects=tuple(map(conditional, old.objects)))
            case Configure():
                return replace(old, configuration=configured(old.configuration))
            case _:
                return old

    return replace(
        story,
        configuration=configured(story.configuration),
        actors={**story.actors, **actors},
        steps=tuple(map(step, story.steps)),
    )


# --- volumes --------------------------------------------------------------------------------------------------------------


def _limited(story: Story, dice: random.Random) -> Story:
    steps: list[AnyStep] = []
    named: list[str] = []
    for step in story.steps:
        late: list[Object] = []
        if isinstance(step, Apply):
            early: list[Object] = []
            for obj in step.objects:
                name = obj.metadata.name
                if isinstance(obj, Node) and name not in named and dice.random() < 0.8:
                    named.append(name)
                    (late if dice.random() < 0.2 else early).append(_limits(name, dice))
            step = replace(step, objects=(*early, *step.objects))
        steps.append(step)
        if late:
            steps.append(Apply(objects=tuple(late), settle=dice.random() < 0.5))
    first = next((i + 1 for i, step in enumerate(steps) if isinstance(step, Apply)), 0)
    for _ in range(dice.randint(0, 5) if named else 0):
        name, settle = dice.choice(named), dice.random() < 0.5
        place = dice.randrange(first, len(steps) + 1)
        changes = dice.random() < 0.7
        steps[place:place] = [
            Apply(objects=(_limits(name, dice),), settle=settle)
            if changes
            else Delete(keys=(f"CSINode//{name}",), settle=settle)
        ]
    return replace(story, steps=tuple(steps))


def _limits(node: str, dice: random.Random) -> Object:
    return nameless(s.csi_node(node, {s.PROVISIONER: dice.choice([0, 1, 1, 2, 3])}))
