"""Tidelog as a library: everything that is public, importable from here.

    import tidelog

    async with tidelog.Scheduler.open("cluster.db") as scheduler:
        await scheduler.apply([tidelog.node("n1").capacity(cpu="4").build(), tidelog.pod("web").build()])
        await scheduler.settled()
        explanation = await scheduler.why("web")

docs/library.md has a line on each name. A name is imported when it is first used, so that `import tidelog` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.api.errors import FieldError as FieldError
    from tidelog.api.errors import InternalError as InternalError
    from tidelog.api.errors import InvalidObjects as InvalidObjects
    from tidelog.api.errors import LogBusy as LogBusy
    from tidelog.api.errors import LogClockWrong as LogClockWrong
    from tidelog.api.errors import LogDamaged as LogDamaged
    from tidelog.api.errors import LogError as LogError
    from tidelog.api.errors import LogFenced as LogFenced
    from tidelog.api.errors import LogFull as LogFull
    from tidelog.api.errors import LogLocked as LogLocked
    from tidelog.api.errors import LogUnreachable as LogUnreachable
    from tidelog.api.errors import PluginError as PluginError
    from tidelog.api.errors import TidelogError as TidelogError
    from tidelog.api.errors import UsageError as UsageError
    from tidelog.api.kinds.kind import Kind as Kind
    from tidelog.api.manifests.manifests import dump_json as dump_json
    from tidelog.api.manifests.manifests import dump_yaml as dump_yaml
    from tidelog.api.manifests.manifests import load as load
    from tidelog.api.objects import Node as Node
    from tidelog.api.objects import Object as Object
    from tidelog.api.objects import Pod as Pod
    from tidelog.daemon.actors.cluster_autoscaler import ClusterAutoscaler as ClusterAutoscaler
    from tidelog.daemon.actors.disruption_controller import DisruptionController as DisruptionController
    from tidelog.daemon.actors.node_agent import NodeAgent as NodeAgent
    from tidelog.daemon.intake.messages import Answer as Answer
    from tidelog.daemon.intake.messages import Refused as Refused
    from tidelog.daemon.process.scheduler import Scheduler as Scheduler
    from tidelog.daemon.process.scheduler import load_configuration as load_configuration
    from tidelog.eventlog.log import Log as Log
    from tidelog.eventlog.log import open_log as open_log
    from tidelog.eventlog.reader import LogReader as LogReader
    from tidelog.eventlog.reader import open_reader as open_reader
    from tidelog.eventlog.records import Record as Record
    from tidelog.eventlog.records import decode_body as decode_body
    from tidelog.eventlog.socket import NoWriter as NoWriter
    from tidelog.framework.interface import Plugin as Plugin
    from tidelog.plugins.registry import IN_TREE as IN_TREE
    from tidelog.plugins.registry import Registry as Registry
    from tidelog.plugins.registry import installed_plugins as installed_plugins
    from tidelog.replay.comparison import Comparison as Comparison
    from tidelog.replay.history import History as History
    from tidelog.replay.history import WhatIf as WhatIf
    from tidelog.replay.history import open_history as open_history
    from tidelog.replay.segments import verify_log as verify_log
    from tidelog.replay.verify import Report as Report
    from tidelog.replay.what_if import Injection as Injection
    from tidelog.replay.why import Why as Why
    from tidelog.replay.why import WhyNot as WhyNot
    from tidelog.testing.builders import namespace as namespace
    from tidelog.testing.builders import node as node
    from tidelog.testing.builders import pdb as pdb
    from tidelog.testing.builders import pod as pod
    from tidelog.testing.builders import pod_group as pod_group
    from tidelog.testing.builders import priority_class as priority_class
    from tidelog.testing.builders import replica_set as replica_set
    from tidelog.testing.builders import replication_controller as replication_controller
    from tidelog.testing.builders import service as service
    from tidelog.testing.builders import stateful_set as stateful_set
    from tidelog.testing.builders import workload as workload
    from tidelog.testing.builders import workload_group as workload_group
    from tidelog.testing.plugin_kit import World as World
    from tidelog.testing.plugin_kit import check_plugin as check_plugin
    from tidelog.testing.sandbox import Sandbox as Sandbox

_MODULES: dict[str, tuple[str, ...]] = {
    "api.errors": (
        "FieldError", "InternalError", "InvalidObjects", "LogBusy", "LogClockWrong", "LogDamaged", "LogError", "LogFenced", "LogFull", "LogLocked",
        "LogUnreachable", "PluginError", "TidelogError", "UsageError",
    ),
    "api.kinds.kind": ("Kind",),
    "api.manifests.manifests": ("dump_json", "dump_yaml", "load"),
    "api.objects": ("Node", "Object", "Pod"),
    "daemon.actors.cluster_autoscaler": ("ClusterAutoscaler",),
    "daemon.actors.disruption_controller": ("DisruptionController",),
    "daemon.actors.node_agent": ("NodeAgent",),
    "daemon.intake.messages": ("Answer", "Refused"),
    "daemon.process.scheduler": ("Scheduler", "load_configuration"),
    "eventlog.socket": ("NoWriter",),
    "eventlog.log": ("Log", "open_log"),
    "eventlog.reader": ("LogReader", "open_reader"),
    "eventlog.records": ("Record", "decode_body"),
    "framework.interface": ("Plugin",),
    "plugins.registry": ("IN_TREE", "Registry", "installed_plugins"),
    "replay.comparison": ("Comparison",),
    "replay.history": ("History", "WhatIf", "open_history"),
    "replay.segments": ("verify_log",),
    "replay.verify": ("Report",),
    "replay.what_if": ("Injection",),
    "replay.why": ("Why", "WhyNot"),
    "testing.builders": (
        "namespace", "node", "pdb", "pod", "pod_group", "priority_class", "replica_set", "replication_controller",
        "service", "stateful_set", "workload", "workload_group",
    ),
    "testing.plugin_kit": ("World", "check_plugin"),
    "testing.sandbox": ("Sandbox",),
}  # fmt: skip
"""The same names for the interpreter; `tests/repo/test_public.py` holds both lists, and docs/library.md, together."""

_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 # From the table.


if not TYPE_CHECKING:  # A type checker shall know a wrong name when it sees one.

    def __getattr__(name: str) -> object:
        """Import a public name from its module."""
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module 'tidelog' has no attribute {name!r}")
        import importlib

        found = getattr(importlib.import_module(f"tidelog.{module}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return __all__
