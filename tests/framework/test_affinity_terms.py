"""Which pods an affinity term selects."""

from __future__ import annotations

import pytest

from tidelog.api.objects import LabelSelector, LabelSelectorRequirement
from tidelog.api.selectors import Labels, SelectorError
from tidelog.framework.affinity_terms import AffinityTerm, Terms, all_select, compile_terms, required_affinity
from tidelog.framework.node_info import PodInfo
from tidelog.testing.builders import pod

NAMESPACES = {"default": {}, "dev": {"env": "dev"}, "prod": {"env": "prod"}}
BROKEN = LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="In"),))


def labels_of(namespace: str) -> Labels | None:
    return NAMESPACES.get(namespace)


def one(selector: object = "app=web", **term: object) -> AffinityTerm:
    """The term of a pod in namespace `default`."""
    (found,) = compile_terms(pod("p").pod_affinity("zone", selector, **term).build()).affinity
    return found


def selects(term: AffinityTerm, namespace: str, **labels: str) -> bool:
    return term.selects(namespace, labels, labels_of)


@pytest.mark.parametrize(
    ("term", "selected"),
    [
        ({}, ["default"]),
        ({"namespaces": ("dev",)}, ["dev"]),
        ({"namespace_selector": "env=dev"}, ["dev"]),
        ({"namespace_selector": "env=dev", "namespaces": ("default",)}, ["default", "dev"]),
        ({"namespace_selector": LabelSelector()}, ["default", "dev", "prod", "unknown"]),
        ({"namespace_selector": "env!=dev"}, ["default", "prod"]),
        ({"namespace_selector": "env=nowhere"}, []),
    ],
)
def test_namespaces_of_a_term(term: dict[str, object], selected: list[str]) -> None:
    compiled = one(**term)

    assert [n for n in ("default", "dev", "prod", "unknown") if selects(compiled, n, app="web")] == selected


def test_an_absent_selector_selects_no_pod_and_an_empty_one_every_pod() -> None:
    assert not selects(one(None), "default", app="web")
    assert selects(one(LabelSelector()), "default")


def test_no_terms_ask_for_no_pod() -> None:
    assert not all_select(Terms(), "default", {}, labels_of)


def test_a_list_with_a_broken_term_counts_as_empty_and_the_others_do_not() -> None:
    terms = compile_terms(
        pod("p")
        .pod_affinity("zone", "app=web")
        .pod_affinity("zone", BROKEN)
        .pod_anti_affinity("host", "app=web")
        .prefer_pod_affinity(3, "zone", "app=web")
        .prefer_pod_anti_affinity(3, "zone", BROKEN)
        .build()
    )

    assert (len(terms.affinity), len(terms.anti_affinity)) == (0, 1)
    assert (len(terms.preferred_affinity), len(terms.preferred_anti_affinity)) == (1, 0)
    assert len(terms.errors) == 2


def test_a_hint_is_told_that_a_term_is_broken() -> None:
    with pytest.raises(SelectorError):
        required_affinity(pod("p").pod_affinity("zone", BROKEN).build())


SELECTORS = (
    "app=web",
    "app=db",
    "team=x",
    "app=web,team=x",
    "app in (web)",
    "app in (web,db)",
    "app",
    "app!=db",
)
LABELS: tuple[dict[str, str], ...] = (
    {},
    {"app": "web"},
    {"app": "db"},
    {"team": "x"},
    {"app": "web", "team": "x"},
    {"app": "cache", "team": "y"},
    {f"l{i}": "" for i in range(20)} | {"app": "web"},
)


@pytest.mark.parametrize("count", [1, 4, 8])
@pytest.mark.parametrize("labels", LABELS)
def test_terms_about_a_pod_are_in_order_and_all_that_select_it(count: int, labels: dict[str, str]) -> None:
    built = pod("p").pod_anti_affinity("zone", LabelSelector()).pod_anti_affinity("zone", None)
    for selector in SELECTORS[:count]:
        built = built.pod_anti_affinity("zone", selector)
    terms = compile_terms(built.build()).anti_affinity

    about = list(terms.about(labels))

    assert about == [term for term in terms if term in about]
    assert [term for term in terms if term.selects("default", labels, labels_of)] == [
        term for term in about if term.selects("default", labels, labels_of)
    ]


def test_terms_that_require_another_label_are_not_looked_at() -> None:
    built = pod("p")
    for i in range(32):
        built = built.pod_anti_affinity("zone", f"team=x,app=a{i}")
    terms = compile_terms(built.build()).anti_affinity

    assert len(terms.about({"team": "x", "app": "b"})) == 1
    assert list(terms.about({"app": "a7"})) == [terms[7]]


def test_equal_terms_of_pods_of_one_namespace_are_one_object() -> None:
    build = pod("p").pod_anti_affinity("zone", "app=web")

    first, second = PodInfo(build.build()), PodInfo(build.named("q").build())
    elsewhere = PodInfo(build.namespace("dev").build())

    assert first.terms.anti_affinity[0] is second.terms.anti_affinity[0]
    assert first.terms.anti_affinity[0] is not elsewhere.terms.anti_affinity[0]
