"""The other objects: who owns a pod, which budgets there are."""

from __future__ import annotations

from msgspec.structs import replace

from tidelog.api.objects import LabelSelector, Object, ObjectMeta
from tidelog.framework.listers import Listers
from tidelog.testing.builders import (
    namespace,
    node,
    pdb,
    pod,
    replica_set,
    replication_controller,
    requirement,
    service,
    stateful_set,
)

WEB = pod("web-1").label(app="web", tier="front")


def listers(*objects: Object) -> Listers:
    found = Listers()
    for obj in objects:
        found.put(obj)
    return found


def test_the_selectors_of_all_services_that_select_the_pod_are_merged() -> None:
    found = listers(
        service("a", {"app": "web"}), service("b", {"tier": "front"}), service("c", {"app": "db"})
    ).owner_selectors(WEB.build())

    assert found == [LabelSelector(match_labels={"app": "web", "tier": "front"})]


def test_services_of_other_namespaces_and_without_selector_do_not_count() -> None:
    found = listers(service("a", {"app": "web"}, namespace="other"), service("b", {}))

    assert found.owner_selectors(WEB.build()) == []


def test_the_owners_selector_is_added() -> None:
    owned = WEB.owner("ReplicaSet", "rs")
    found = listers(service("a", {"app": "web"}), replica_set("rs", "tier=front"))

    assert found.owner_selectors(owned.build()) == [
        LabelSelector(match_labels={"app": "web"}),
        LabelSelector(match_labels={"tier": "front"}),
    ]


def test_a_stateful_set_owns_and_an_absent_or_empty_owner_adds_nothing() -> None:
    owned = WEB.owner("StatefulSet", "db").build()

    assert listers(stateful_set("db", "app=web")).owner_selectors(owned) == [
        LabelSelector(match_labels={"app": "web"})
    ]
    assert listers(stateful_set("other", "app=web")).owner_selectors(owned) == []
    assert listers(stateful_set("db", LabelSelector())).owner_selectors(owned) == []
    assert listers(stateful_set("db", None)).owner_selectors(owned) == []


def test_a_replication_controllers_map_is_merged_with_the_services() -> None:
    owned = WEB.owner("ReplicationController", "rc", api_version="v1").build()
    found = listers(service("a", {"app": "web"}), replication_controller("rc", {"tier": "front"}))

    assert found.owner_selectors(owned) == [LabelSelector(match_labels={"app": "web", "tier": "front"})]


def test_an_owner_of_another_api_group_is_not_known() -> None:
    owned = WEB.owner("ReplicaSet", "rs", api_version="example.com/v1").build()

    assert listers(replica_set("rs", "app=web")).owner_selectors(owned) == []


def test_generation_tells_of_what_pods_are_selected_by_and_of_nothing_else() -> None:
    rs, svc, ns = (
        replica_set("rs", "tier=front"),
        service("a", {"app": "web"}),
        namespace("prod", {"team": "x"}),
    )
    found = listers(rs, svc, ns)
    known = found.generation
    newer = ObjectMeta(name="rs", namespace="default", resource_version="9", annotations={"revision": "2"})

    found.put(replace(rs, metadata=newer, spec=replace(rs.spec, replicas=50)))
    found.put(replace(svc, metadata=replace(svc.metadata, resource_version="10")))
    found.put(replace(ns, metadata=replace(ns.metadata, resource_version="11")))
    found.put(WEB.build())
    assert found.generation == known

    for changed in (
        replica_set("rs", "tier=back"),
        service("a", {"app": "api"}),
        service("b", {"app": "web"}),
        namespace("prod", {"team": "y"}),
    ):
        found.put(changed)
        known += 1
        assert found.generation == known
    found.delete(svc)
    assert found.generation == known + 1


def test_what_is_deleted_is_gone() -> None:
    found = listers(service("a", {"app": "web"}), namespace("ns"), pdb("b", "app=web"))
    for obj in (service("a", {"app": "web"}), namespace("ns"), pdb("b", "app=web")):
        found.delete(obj)

    assert found.owner_selectors(WEB.build()) == []
    assert found.namespace("ns") is None
    assert found.budgets("default") == ()


def test_budgets_are_in_order_of_their_names_and_up_to_date() -> None:
    found = listers(pdb("b", "app=web"), pdb("a", "app=web"))

    assert [one.metadata.name for one in found.budgets("default")] == ["a", "b"]

    found.put(pdb("0", "app=web"))

    assert [one.metadata.name for one in found.budgets("default")] == ["0", "a", "b"]
    assert found.budgets("other") == ()


def test_a_namespace_is_found_with_its_labels() -> None:
    found = listers(namespace("ns", {"team": "a"})).namespace("ns")

    assert found is not None
    assert found.metadata.labels["team"] == "a"


def test_objects_of_other_kinds_are_ignored() -> None:
    found = listers(node("n").build(), pod("p").build())

    found.delete(node("n").build())

    assert found.namespace("n") is None


def test_the_namespaces_of_every_cluster_are_there_before_anybody_describes_them() -> None:
    found = listers()

    system = found.namespace("kube-system")
    assert system is not None
    assert system.metadata.labels == {"kubernetes.io/metadata.name": "kube-system"}
    found.put(namespace("kube-system", {"team": "core"}))
    described = found.namespace("kube-system")
    assert described is not None
    assert described.metadata.labels["team"] == "core"
    assert found.namespace("team-a") is None


def test_an_owner_whose_selector_is_broken_adds_nothing() -> None:
    broken = LabelSelector(match_expressions=(requirement("app", "Between", "a"),))
    owned = WEB.owner("ReplicaSet", "rs").build()

    assert listers(replica_set("rs", broken)).owner_selectors(owned) == []
