"""Names in Kubernetes' own wording."""

from __future__ import annotations

import pytest

from tidelog.api.validation import names


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (
            names.dns_label,
            "A",
            (
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
                "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
                "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ),
        ),
        (
            names.dns_subdomain,
            "a..b",
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')".replace("\\\\", "\\"),
        ),
        (
            names.label_value,
            "a b",
            (
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
                "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
                "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ),
        ),
        (
            names.percent,
            "5",
            (
                "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex "
                "used for validation is '[0-9]+%')"
            ),
        ),
    ],
)
def test_rule_is_worded_as_kubernetes_words_it(check: names.NameCheck, value: str, expected: str) -> None:
    assert check(value) == (expected,)


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (names.label_key, "app"),
        (names.label_key, "topology.kubernetes.io/zone"),
        (names.label_key, "A_b.c-9"),
        (names.label_value, ""),
        (names.label_value, "a" * 63),
        (names.dns_label, "9-a"),
        (names.dns_subdomain, "a.b.c"),
        (names.dns_subdomain, ".".join(["a" * 63] * 3)),
        (names.percent, "100%"),
        (names.port_name, "http-alt"),
    ],
)
def test_good_name_breaks_no_rule(check: names.NameCheck, value: str) -> None:
    assert check(value) == ()


@pytest.mark.parametrize("value", ["a\n", "é", "a\x00", "١"])
def test_only_ascii_makes_names(value: str) -> None:
    for check in (names.label_key, names.label_value, names.dns_label, names.dns_subdomain):
        assert check(value) != ()


def test_very_long_names_cost_their_length() -> None:
    value = "a." * 500_000

    assert len(names.dns_subdomain(value)) == 2
    assert len(names.label_key(value)) == 2
