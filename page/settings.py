"""A configuration as lines of a setting and its value: two that are laid side by side show by themselves what differs."""

from __future__ import annotations

from typing import Any

import msgspec

from tidelog.configuration.configuration import SchedulerConfiguration


def settings(configuration: SchedulerConfiguration | None) -> dict[str, str]:
    """Setting → its value, `weight of NodeResourcesFit` for one; with several profiles the profile stands before it. Costs some microseconds a plugin."""
    if configuration is None:
        return {}
    plain: dict[str, Any] = msgspec.to_builtins(configuration)
    profiles = plain.pop("profiles")
    found: dict[str, str] = {}
    for profile in profiles:
        of = f"{profile['schedulerName']}: " if len(profiles) > 1 else ""
        for point, entries in profile["points"].items():
            for entry in entries:
                weighted = point in ("score", "placementScore")
                name = f"weight of {entry['name']}" if weighted else f"{entry['name']} in {point}"
                found[of + name] = str(entry["weight"]) if weighted else "on"
        for plugin, args in profile["args"].items():
            found |= _lines(f"{of}{plugin}.", args)
    return found | _lines("", plain)


def _lines(before: str, values: dict[str, Any]) -> dict[str, str]:
    return {
        before + name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in values.items()
    }
