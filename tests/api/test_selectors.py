"""What selectors and tolerations match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Taint,
    Toleration,
)
from tidelog.api.selector_text import parse_label_selector, parse_requirements
from tidelog.api.selectors import (
    SelectorError,
    label_matcher,
    map_matcher,
    node_selector_error,
    node_selector_matcher,
    parse_int64,
    pod_matches_node,
)
from tidelog.api.taints import is_tolerated, tolerates, untolerated
from tidelog.testing import builders as build

LABELS = {"app": "web", "tier": "front", "cores": "8", "empty": ""}


def matches(text: str) -> bool:
    return label_matcher(parse_label_selector(text))(LABELS)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=db", False),
        ("app!=db", True),
        ("app!=web", False),
        ("absent!=web", True),
        ("app in (web,db)", True),
        ("app in (db)", False),
        ("absent in (web)", False),
        ("absent in ()", False),
        ("app notin (web)", False),
        ("app notin (db)", True),
        ("absent notin (web)", True),
        ("app", True),
        ("absent", False),
        ("!absent", True),
        ("!app", False),
        ("empty=", True),
        ("empty", True),
        ("absent=", False),
        ("app=web,tier=front", True),
        ("app=web,tier=back", False),
        (" app = web , tier in ( front , back ) ", True),
        ("app=web,app=db", False),
    ],
)
def test_label_selector_matches_as_kubernetes_does(selector: str, expected: bool) -> None:
    assert matches(selector) == expected


def test_absent_selector_matches_nothing_and_the_empty_one_everything() -> None:
    assert label_matcher(None)({}) is False
    assert label_matcher(None)(LABELS) is False
    assert label_matcher(LabelSelector())({}) is True
    assert map_matcher({})(LABELS) is False
    assert map_matcher({"app": "web"})(LABELS) is True
    assert map_matcher({"app": "web", "tier": "back"})(LABELS) is False


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("In", ()),
        ("NotIn", ()),
        ("Exists", ("x",)),
        ("DoesNotExist", ("x",)),
        ("Gt", ("1",)),
        ("Lt", ("1",)),
        ("in", ("x",)),
        ("", ()),
    ],
)
def test_label_selector_that_does_not_parse_is_an_error(operator: str, values: tuple[str, ...]) -> None:
    requirement = LabelSelectorRequirement(key="app", operator=operator, values=values)

    with pytest.raises(SelectorError):
        label_matcher(LabelSelector(match_expressions=(requirement,)))


NODE = build.node("n1").label(LABELS).label(big="12345678901234567890", neg="-5", word="x").build()


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("cores>7", True),
        ("cores>8", False),
        ("cores<9", True),
        ("cores<8", False),
        ("neg<0", True),
        ("absent>0", False),
        ("absent<0", False),
        ("word>0", False),
        ("big>0", False),
        ("metadata.name=n1", True),
        ("metadata.name!=n1", False),
        ("metadata.name=n2", False),
        ("metadata.name=n1,app=web", True),
        ("metadata.name=n1,app=db", False),
        ("app notin (db),cores>4", True),
        ("", False),
    ],
)
def test_node_selector_term_matches_as_kube_scheduler_does(term: str, expected: bool) -> None:
    selector = NodeSelector(node_selector_terms=(build.node_term(term),))

    assert node_selector_matcher(selector)(NODE) == expected


def broken(operator: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=(NodeSelectorRequirement(key="cores", operator=operator, values=values),)
    )


@pytest.mark.parametrize(
    "term",
    [
        broken("Gt", "x"),
        broken("Gt", "1", "2"),
        broken("Lt"),
        broken("In"),
        broken("Near", "x"),
        broken("Gt", "9223372036854775808"),
        NodeSelectorTerm(match_fields=(NodeSelectorRequirement(key="metadata.name", operator="Exists"),)),
        NodeSelectorTerm(
            match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("a", "b")),)
        ),
    ],
)
def test_term_that_does_not_parse_never_matches_and_others_still_may(term: NodeSelectorTerm) -> None:
    alone = NodeSelector(node_selector_terms=(term,))
    beside = NodeSelector(node_selector_terms=(term, build.node_term("app=web")))

    assert not node_selector_matcher(alone)(NODE)
    assert node_selector_matcher(beside)(NODE)
    assert node_selector_error(alone) is not None
    assert node_selector_error(NodeSelector(node_selector_terms=(build.node_term("app=web"),))) is None


def test_terms_are_alternatives_and_no_terms_match_nothing() -> None:
    selector = NodeSelector(node_selector_terms=(build.node_term("app=db"), build.node_term("app=web")))

    assert node_selector_matcher(selector)(NODE)
    assert not node_selector_matcher(NodeSelector())(NODE)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (build.pod("p"), True),
        (build.pod("p").node_selector(app="web"), True),
        (build.pod("p").node_selector(app="web", absent=""), False),
        (build.pod("p").node_affinity("app=db", "app=web"), True),
        (build.pod("p").node_selector(app="web").node_affinity("app=db"), False),
        (build.pod("p").prefer_node(1, "app=db"), True),
    ],
)
def test_pod_matches_node_by_selector_and_required_affinity(pod: build.PodBuilder, expected: bool) -> None:
    assert pod_matches_node(pod.build().spec, NODE) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("+5", 5),
        ("-5", -5),
        ("007", 7),
        ("9223372036854775807", (1 << 63) - 1),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("", None),
        ("1.0", None),
        (" 1", None),
        ("1_0", None),
        ("٥", None),
    ],
)
def test_integers_are_gos(text: str, expected: int | None) -> None:
    assert parse_int64(text) == expected


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")),
    st.lists(
        st.builds(
            LabelSelectorRequirement,
            key=st.sampled_from("abc"),
            operator=st.sampled_from(["In", "NotIn"]),
            values=st.lists(st.sampled_from("xyz"), min_size=1).map(tuple),
        )
    ),
)
def test_requirements_are_all_asked(
    labels: dict[str, str], requirements: list[LabelSelectorRequirement]
) -> None:
    expected = all((labels.get(r.key) in r.values) == (r.operator == "In") for r in requirements)

    assert label_matcher(LabelSelector(match_expressions=tuple(requirements)))(labels) == expected


# --- as text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "column"),
    [
        (",", 1),
        ("a,", 3),
        ("a=b c", 5),
        ("a in b", 3),
        ("a in (b", 3),
        ("=b", 1),
        ("a=b=c", 4),
        ("(a)", 1),
        ("!", 1),
        ("a b", 3),
    ],
)
def test_text_that_is_no_selector_is_told_with_its_column(text: str, column: int) -> None:
    with pytest.raises(SelectorError, match=rf"\(column {column}\)"):
        parse_requirements(text)


def test_comparison_needs_an_integer_and_a_node() -> None:
    with pytest.raises(SelectorError, match="'x' must be an integer after '>'"):
        parse_requirements("cores>x")
    with pytest.raises(SelectorError, match="labels of objects cannot be compared"):
        parse_label_selector("cores>4")


@given(st.text(max_size=60))
def test_any_text_is_a_selector_or_a_selector_error(text: str) -> None:
    complaint = ""
    try:
        found = parse_requirements(text)
    except SelectorError as error:
        found, complaint = (), str(error)

    assert all(r.key and r.operator for r in found)
    assert complaint == "" or "column" in complaint or "integer" in complaint


# --- taints -------------------------------------------------------------------------------------------------------------

TAINT = Taint(key="gpu", value="a100", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="gpu", operator="Equal", value="a100"), True),
        (Toleration(key="gpu", value="a100"), True),
        (Toleration(key="gpu", value="h100"), False),
        (Toleration(key="gpu"), False),
        (Toleration(key="cpu", operator="Exists"), False),
        (Toleration(key="gpu", operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Exists", effect="NoExecute"), False),
        (Toleration(operator="Exists", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Gt", value="a100"), False),
    ],
)
def test_toleration_matches_as_kubernetes_does(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, TAINT) == expected
    assert is_tolerated(TAINT, (Toleration(key="x", operator="Exists"), toleration)) == expected


def test_first_taint_that_keeps_pods_away_is_found() -> None:
    soft = Taint(key="soft", effect="PreferNoSchedule")
    hard = Taint(key="hard", effect="NoExecute")

    assert untolerated((soft, TAINT, hard), ()) == TAINT
    assert untolerated((soft, TAINT, hard), (Toleration(key="gpu", operator="Exists"),)) == hard
    assert untolerated((soft,), ()) is None
