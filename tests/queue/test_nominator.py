"""Nominations: where they come from, and when they stay."""

from __future__ import annotations

from tidelog.api.objects import Pod
from tidelog.queue.nominator import Nominator
from tidelog.testing import builders as build


def names(nominator: Nominator, node: str) -> list[str]:
    return [pod.name for pod in nominator.pods_on(node)]


def pod(name: str = "p", nominated: str = "") -> Pod:
    return build.pod(name).nominated(nominated).build()


def test_nomination_comes_from_the_status_or_from_the_caller() -> None:
    nominator = Nominator()

    nominator.nominate(pod("a", "n1"))
    nominator.nominate(pod("b", "n1"), "n2")
    nominator.nominate(pod("c"))

    assert [nominator.node_of(pod(name)) for name in "abc"] == ["n1", "n2", ""]


def test_bound_pod_is_not_nominated_whatever_its_status_says() -> None:
    nominator = Nominator()
    nominator.nominate(pod("a", "n1"))

    nominator.nominate(build.pod("a").nominated("n1").on("n2").build())

    assert nominator.nominations() == []


def test_pods_of_a_node_come_in_the_order_of_their_nomination() -> None:
    nominator = Nominator()
    for name in ("b", "c", "a"):
        nominator.nominate(pod(name), "n")

    nominator.nominate(pod("b"), "n")

    assert names(nominator, "n") == ["c", "a", "b"]
    assert names(nominator, "other") == []


def test_a_new_nomination_replaces_the_old_one_and_an_empty_one_clears_it() -> None:
    nominator = Nominator()
    nominator.nominate(pod(), "n1")

    nominator.nominate(pod(), "n2")
    assert (names(nominator, "n1"), names(nominator, "n2")) == ([], ["p"])

    nominator.nominate(pod(), "")
    assert len(nominator) == 0


def test_nomination_that_is_only_here_stays_while_no_version_names_a_node() -> None:
    nominator = Nominator()
    nominator.nominate(pod(), "n1")
    labelled = build.pod("p").label(app="x").build()

    nominator.update(pod(), labelled)

    assert nominator.node_of(pod()) == "n1"
    assert nominator.pods_on("n1")[0].labels == {"app": "x"}


def test_a_version_that_names_a_node_decides() -> None:
    nominator = Nominator()
    nominator.nominate(pod(), "n1")

    nominator.update(pod(), pod(nominated="n2"))
    assert nominator.node_of(pod()) == "n2"

    nominator.update(pod(nominated="n2"), pod())
    assert nominator.node_of(pod()) == ""


def test_forgetting_what_is_not_nominated_is_harmless() -> None:
    nominator = Nominator()
    nominator.forget(pod())
    nominator.nominate(pod(), "n1")

    nominator.forget(pod("other"))
    nominator.forget(pod())

    assert nominator.nominations() == []


def test_restoring_replaces_what_was_nominated_before() -> None:
    nominator = Nominator()
    nominator.nominate(build.pod("old").build(), "n1")

    nominator.restore([(build.pod("new").build(), "n2")])

    assert ([pod.name for pod in nominator.pods_on("n2")], nominator.pods_on("n1")) == (["new"], ())


def test_node_that_nobody_is_nominated_to_any_more_is_forgotten() -> None:
    nominator = Nominator()
    nominator.nominate(pod("a", "n1"))
    nominator.nominate(pod("b", "n1"))
    nominator.nominate(pod("c", "n2"))

    nominator.forget(pod("a"))
    nominator.forget(pod("c"))

    assert nominator.nodes() == ["n1"]


def test_restored_nominations_are_in_the_order_in_which_they_were_made() -> None:
    """Who was nominated first is looked at first, and a restarted scheduler must decide as the one before."""
    nominator, other = Nominator(), Nominator()
    for name, node in (("b", "n2"), ("c", "n1"), ("a", "n2"), ("d", "n1"), ("b", "n2")):
        nominator.nominate(pod(name), node)

    other.restore([(found.pod, node) for found, node in nominator.nominations()])

    assert other.nodes() == nominator.nodes() == ["n2", "n1"]
    assert names(other, "n2") == names(nominator, "n2") == ["a", "b"]
    assert names(other, "n1") == names(nominator, "n1") == ["c", "d"]
