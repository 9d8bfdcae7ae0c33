"""How explanations name things: events, objects, moments."""

from __future__ import annotations

from tidelog.framework.events import ACTION_BY_NAME, Action, ClusterEvent

_SINGLE = {name: action for name, action in ACTION_BY_NAME.items() if action.bit_count() == 1}


def event_name(event: ClusterEvent) -> str:
    """As metrics label it; an event of several actions, which has no label, spells them out: `Node Add|UpdateNodeTaint`."""
    if event.label:
        return event.label
    resource = "any resource" if event.resource == "*" else str(event.resource)
    return f"{resource} {'|'.join(_actions(event.action))}"


def _actions(action: Action) -> list[str]:
    """The names of the actions, an update of every kind as one."""
    if action & Action.UPDATE == Action.UPDATE:
        rest = Action(action & ~Action.UPDATE)
        return [*(name for name, one in _SINGLE.items() if one in rest), "Update"]
    return [name for name, one in _SINGLE.items() if one in action]


def short(key: str) -> str:
    """`Pod/default/web-1` as `pod default/web-1`, `Node//n1` as `node n1`."""
    kind, _, rest = key.partition("/")
    if not rest:
        return key
    namespace, _, name = rest.partition("/")
    if not name:
        return key
    return f"{kind.lower()} {namespace}/{name}" if namespace else f"{kind.lower()} {name}"
