"""Numbered changes of what is decided, so that old logs still verify under the behaviour that made them.

A version that would decide an old log differently gives the change a number here, and asks for it where the two part ways, once, when
the configuration is put to work:

    self._in_the_new_way = handle.behaves(behaviours.THIS_CHANGE)      # in a plugin; `configuration.behaves(…)` in the core

The numbers in force are part of the configuration that the log records: a new configuration gets all that there are, an old one keeps those
that it was recorded with, through restarts and replays. A number that this version does not know was given by a newer one, and is refused.
A number is never given out again, and its old way stays as long as logs of that age are to verify. For each there is a golden log
(`tests/golden`) with both ways in it, and a line in docs/replay.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.api.errors import TidelogError


class Behaviour(NamedTuple):
    """One change of what is decided."""

    name: str
    """Of its golden log."""
    since: str
    """The first version of tidelog that knows it."""
    what: str
    """The behaviour in one sentence."""


GUARDED_STARTING_PODS = 1
OWN_LEVELS_WAKE = 2
GENERATORS_AFTER_PRE_FILTER = 3
ONE_IMAGE_SIZE = 4
TIES_FOLLOW_PODS = 5
DEVICE_PLACEMENTS = 6
SELECTORS_PAUSE_NOBODY = 7
NOMINATED_REJECTORS = 8
LOSS_ENDS_ATTEMPTS = 9
SEARCHES_OF_THEIR_OWN = 10
NODES_WAKE_FOR_VOLUMES = 11
GROUP_ERRORS_WAIT = 12
PROMISES_STAY = 13
PLANS_NEED_DEVICES = 14
STAYING_TAKES_NOTHING = 15
FAILURES_STAND = 16
LEAVING_HURTS_LATER = 17
BINDINGS_NEED_NODES = 18
GROUPS_SAY_AGAIN = 19
PROMISED_VOLUMES_COUNT = 20
ANSWERS_ARE_AWAITED = 21
BOUND_AS_THEY_ARE = 22
MEMBERS_ARE_TOLD_APART = 23
QUORUMS_LAST = 24
LESS_ATTACHED_WAKES = 25
OBSTACLES_GONE_WAKE = 26
LOSS_ENDS_WAITS = 27

BEHAVIOURS: dict[int, Behaviour] = {
    GUARDED_STARTING_PODS: Behaviour(
        "guarded-starting-pods",
        "0.1.0",
        "The eviction of a protected pod that is not Ready, or not even running, costs its disruption budgets as that of any other does.",
    ),
    OWN_LEVELS_WAKE: Behaviour(
        "own-levels-wake",
        "0.1.0",
        "A group that TopologyPlacement rejected is woken by labels of nodes only if they are those of its own levels.",
    ),
    GENERATORS_AFTER_PRE_FILTER: Behaviour(
        "generators-after-pre-filter",
        "0.1.0",
        "PreFilter has run for the first member when a group's placements are generated, and the generators are given its state.",
    ),
    ONE_IMAGE_SIZE: Behaviour(
        "one-image-size",
        "0.1.0",
        "With `compat: upstream` ImageLocality counts one size of an image on all nodes, that on the first of them, as kube-scheduler does.",
    ),
    TIES_FOLLOW_PODS: Behaviour(
        "ties-follow-pods",
        "0.1.0",
        "Of equally good nodes one with the fewest pods is taken; which of those follows from the pod, and no longer from the attempt's number.",
    ),
    DEVICE_PLACEMENTS: Behaviour(
        "device-placements",
        "0.1.0",
        "A group whose members share a claim that has no devices yet is tried with each set of devices that belong together, as KEP-5732 asks.",
    ),
    SELECTORS_PAUSE_NOBODY: Behaviour(
        "selectors-pause-nobody",
        "0.1.0",
        "A device's selector is given up after 50,000 units of cost, and a dear one is paid for in steps of the search; with `compat: upstream` after 1,000,000, as by the API server's evaluator.",
    ),
    NOMINATED_REJECTORS: Behaviour(
        "nominated-rejectors",
        "0.1.0",
        "With `compat: upstream` the message about nodes that PreFilter left out also names the plugins that rejected the node to which the pod was nominated, as kube-scheduler's does.",
    ),
    LOSS_ENDS_ATTEMPTS: Behaviour(
        "loss-ends-attempts",
        "0.1.0",
        "A repair that drops a part of a group's outcomes ends that attempt: its members that have no node are tried again, and it is not in flight for ever.",
    ),
    SEARCHES_OF_THEIR_OWN: Behaviour(
        "searches-of-their-own",
        "0.1.0",
        "The first 1,000 steps of a search for devices are the node's own, whatever other nodes took, before it tries combinations it counts whether there are enough devices, and what many nodes reach is searched in vain once.",
    ),
    NODES_WAKE_FOR_VOLUMES: Behaviour(
        "nodes-wake-for-volumes",
        "0.1.0",
        "A pod that NodeVolumeLimits rejected is woken by a new node and by a CSINode that goes, one that VolumeBinding rejected by the end of a CSIDriver that counted space, and a claim for one pod alone is in use until the last of several that mount it has gone.",
    ),
    GROUP_ERRORS_WAIT: Behaviour(
        "group-errors-wait",
        "0.1.0",
        "A member that comes back with an error makes its group back off as after that error, and an idle scheduler does not try the group before.",
    ),
    PROMISES_STAY: Behaviour(
        "promises-stay",
        "0.1.0",
        "What attempts in flight have promised of a claim that pods share stays in sight when an earlier promise of it comes true, and is not taken back by the next one.",
    ),
    PLANS_NEED_DEVICES: Behaviour(
        "plans-need-devices",
        "0.1.0",
        "A preemption for a pod with claims is called off if devices are gone or taken before its record is written: nobody is evicted for a place that may be none any more.",
    ),
    STAYING_TAKES_NOTHING: Behaviour(
        "staying-takes-nothing",
        "0.1.0",
        "A bound pod that begins to terminate, or gets other labels, takes no room on its node: it calls off no decision but one that depends on which pods are there.",
    ),
    FAILURES_STAND: Behaviour(
        "failures-stand",
        "0.1.0",
        "A wait for answers that has failed ends in its error also when another object that was written for it changes meanwhile.",
    ),
    LEAVING_HURTS_LATER: Behaviour(
        "leaving-hurts-later",
        "0.1.0",
        "That a pod is deleted which an attempt in flight had placed calls off only attempts after that one: no earlier one counted on it.",
    ),
    BINDINGS_NEED_NODES: Behaviour(
        "bindings-need-nodes",
        "0.1.0",
        "A pod that waited for answers, or for those of its gang, is not bound to a node that has gone meanwhile; its binding is called off if the node changes before its record is written.",
    ),
    GROUPS_SAY_AGAIN: Behaviour(
        "groups-say-again",
        "0.1.0",
        "A group's rejection is written out again if the group's own condition does not say it any more, as a pod's is.",
    ),
    PROMISED_VOLUMES_COUNT: Behaviour(
        "promised-volumes-count",
        "0.1.0",
        "NodeVolumeLimits leaves a node the attachments for the pods nominated to it, and counts a claim that one of them mounts too once, as kube-scheduler does.",
    ),
    ANSWERS_ARE_AWAITED: Behaviour(
        "answers-are-awaited",
        "0.1.0",
        "A pod whose devices were given to it by an earlier attempt, and are not ready yet, waits for them, though nothing is left to be written.",
    ),
    BOUND_AS_THEY_ARE: Behaviour(
        "bound-as-they-are",
        "0.1.0",
        "A pod that changed while it waited for its permit or for answers counts as what it has become once it is bound, and who may go by that is woken.",
    ),
    MEMBERS_ARE_TOLD_APART: Behaviour(
        "members-are-told-apart",
        "0.1.0",
        "Of the members of a group whose devices are not ready yet each goes where its own are, and not where those of the member before it are.",
    ),
    QUORUMS_LAST: Behaviour(
        "quorums-last",
        "0.1.0",
        "Members that make up a group's quorum with others which wait for a permit or for answers are not placed if those lose their places before the record is written.",
    ),
    LESS_ATTACHED_WAKES: Behaviour(
        "less-attached-wakes",
        "0.1.0",
        "A pod that NodeVolumeLimits rejected is woken by all that may leave its volumes room: claims, volumes and classes that go, a claim that gets another volume than one made for it, a limit that ends, a driver that is installed or need not be, and another pod with one of its claims.",
    ),
    OBSTACLES_GONE_WAKE: Behaviour(
        "obstacles-gone-wake",
        "0.1.0",
        "A pod is woken when what kept it away goes: for VolumeRestrictions the node of a pod that has its claim for itself and a pod of another namespace that has its disk, for DynamicResources devices that a claim gives back for others, a claim of its own that was left over, a class that backed its extended resource, and a slice where all devices are asked for or that its pool had too many.",
    ),
    LOSS_ENDS_WAITS: Behaviour(
        "loss-ends-waits",
        "0.1.0",
        "A repair that drops a part of the outcomes by which the wait of a group's members ends, ends it for the others too: they are tried again, and do not wait for ever. Together with loss-ends-attempts.",
    ),
}
"""Number → what changed."""


def all_behaviours() -> tuple[int, ...]:
    """Return the behaviours that a configuration made today asks for."""
    return tuple(sorted(BEHAVIOURS))


def check_behaviours(numbers: Iterable[int]) -> None:
    """Raises TidelogError for a number that this version does not know."""
    unknown = sorted(number for number in numbers if number not in BEHAVIOURS)
    if unknown:
        raise TidelogError(
            f"the log's configuration asks for behaviour {', '.join(map(str, unknown))}, which this tidelog does not know: "
            "a newer one wrote it; use that one, or a newer one"
        )
