"""A kind that another package declares has everything that one of ours has: one declaration is enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tidelog.api.errors import PluginError
from tidelog.api.kinds import registry
from tidelog.api.kinds.columns import View, column
from tidelog.api.kinds.kind import Kind, Redaction
from tidelog.api.kinds.registry import KINDS, find_kind, kind_of, object_key, register, unregister
from tidelog.api.manifests.manifests import dump_yaml, load
from tidelog.api.objects import Int32, Model, Object, ObjectMeta
from tidelog.api.validation.check import Check
from tidelog.cli.tables.listing import columns_of
from tidelog.daemon.intake.messages import Refused
from tidelog.eventlog.objects import ObjectTable
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Resource
from tidelog.framework.interface import Depends, Plugin, unschedulable
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.redact import redact
from tidelog.testing.builders import node, pod
from tidelog.testing.sandbox import Sandbox


class LicenceSpec(Model, frozen=True, kw_only=True):
    product: str = ""
    seats: Int32 = 0
    edition: str = ""


class Licence(Object, frozen=True, kw_only=True):
    spec: LicenceSpec = LicenceSpec()


def validate_licence(licence: Licence, check: Check) -> None:
    if licence.spec.seats < 0:
        check.invalid("spec.seats", licence.spec.seats, "must be greater than or equal to 0")


LICENCE = Kind(
    name="Licence",
    type=Licence,
    group="example.com",
    version="v1",
    plural="licences",
    short_names=("lic",),
    validate=validate_licence,
    events="upstream",
    columns=(column(Licence, "SEATS", lambda licence: licence.spec.seats),),
    redaction=Redaction(kept=("edition",)),
)


class NeedsLicence(Plugin):
    name = "NeedsLicence"
    kinds = (LICENCE,)
    filter_depends = Depends.CLUSTER

    def filter(self, state: Any, pod: Any, node: Any) -> Any:
        found = self.handle.listers.object_of(Licence, pod.namespace, "cad")
        return None if found is not None and found.spec.seats else unschedulable("no licence")

    def events_to_register(self) -> list[EventRegistration]:
        event = ClusterEvent(Resource("example.com/Licence"), Action.ADD | Action.UPDATE)
        return [EventRegistration(event)]


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    register(LICENCE)
    yield
    unregister(LICENCE)


def licence(seats: int, edition: str = "") -> Licence:
    spec = LicenceSpec(product="cad", seats=seats, edition=edition)
    return Licence(metadata=ObjectMeta(name="cad", namespace="default"), spec=spec)


def sandbox() -> Sandbox:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "NeedsLicence"}]}}}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    return Sandbox(config, registry=Registry([*IN_TREE, NeedsLicence]))


def test_manifests_are_read_written_and_validated() -> None:
    manifest = dump_yaml([licence(3)])

    assert manifest.startswith("apiVersion: example.com/v1\nkind: Licence\n")
    assert load(manifest) == [licence(3)]
    assert find_kind("lic") is find_kind("licences.example.com") is kind_of(licence(3)) is LICENCE
    assert object_key(licence(3)) == "Licence/default/cad"


async def test_invalid_object_is_refused() -> None:
    async with sandbox() as box:
        with pytest.raises(Refused, match=r"spec.seats: Invalid value: -1"):
            await box.apply(licence(-1))


async def test_plugin_reads_it_and_its_events_wake_pods_also_after_a_restart() -> None:
    async with sandbox() as box:
        await box.apply([node("n1").build(), pod("web").build(), licence(0)])
        await box.restart()
        assert box.pod("web").spec.node_name == ""

        await box.apply(licence(2))
        await box.advance(30)

        assert box.pod("web").spec.node_name == "n1"
        await box.verify()


async def test_log_table_and_redaction_know_it() -> None:
    async with sandbox() as box:
        await box.apply(licence(2, edition="Enterprise"))
        records = [record async for record in box.records()]

    table = ObjectTable()
    for record in records:
        table.apply(record)
    again = ObjectTable.decode(table.encode())
    (entry,) = again.of_kind("Licence")
    shown = [column.cell(entry.object, View(0, ())) for column in columns_of(LICENCE, False)]
    copy = [r for r in redact(records, box.registry).records if r.key.startswith("Licence/")]
    plain = msgspec.msgpack.decode(copy[0].body)["object"]
    assert again.digest() == table.digest()
    assert shown[0] == 2
    assert plain["spec"]["edition"] == "Enterprise"
    assert plain["spec"]["product"] != "cad" != plain["metadata"]["name"]


def test_names_that_are_taken_are_refused() -> None:
    class Other(Object, frozen=True, kw_only=True):
        pass

    for names in ({"plural": "pods"}, {"plural": "others", "short_names": ("pdb",)}):
        with pytest.raises(PluginError, match="is taken by Pod"):
            register(Kind(name="Other", type=Other, version="v1", **names))  # type: ignore[arg-type]
    with pytest.raises(PluginError, match="must be derived from"):
        register(Kind(name="Other", type=Check, version="v1", plural="others"))  # type: ignore[arg-type]
    assert "Other" not in registry.KIND_BY_NAME


def test_registering_again_changes_nothing() -> None:
    before = list(KINDS)

    assert register(LICENCE) is LICENCE
    assert list(KINDS) == before
