"""Kubernetes' rules for names, label keys and label values, in its own words.

Each check returns the broken rules, mostly none. They are cached, because the names in a cluster's objects repeat.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

Rules = tuple[str, ...]
NameCheck = Callable[[str], Rules]

_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_SUBDOMAIN = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
_PERCENT = "[0-9]+%"

_qualified = re.compile(_QUALIFIED, re.ASCII)
_label_value = re.compile(_LABEL_VALUE, re.ASCII)
_dns_label = re.compile(_DNS_LABEL, re.ASCII)
_dns_subdomain = re.compile(_DNS_SUBDOMAIN, re.ASCII)
_percent = re.compile(_PERCENT, re.ASCII)

NAME_LENGTH_MAX = 63
SUBDOMAIN_LENGTH_MAX = 253


def _regex_rule(rule: str, pattern: str, *examples: str) -> str:
    """The odd commas are Kubernetes' own; people search for these texts."""
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


_QUALIFIED_RULE = _regex_rule(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    _QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
_LABEL_VALUE_RULE = _regex_rule(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    _LABEL_VALUE,
    "MyValue",
    "my_value",
    "12345",
)
_DNS_LABEL_RULE = _regex_rule(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _DNS_LABEL,
    "my-name",
    "123-abc",
)
_DNS_SUBDOMAIN_RULE = _regex_rule(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    _DNS_SUBDOMAIN,
    "example.com",
)
_PERCENT_RULE = _regex_rule(
    "a valid percent string must be a numeric string followed by an ending '%'", _PERCENT, "1%", "93%"
)
_TOO_MANY_PARTS = f"a qualified name {_QUALIFIED_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"


@lru_cache(maxsize=8192)
def label_key(value: str) -> Rules:
    """A qualified name: `[dns.subdomain/]name`, the name of at most 63 characters."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        return (_TOO_MANY_PARTS,)
    found: list[str] = []
    if slash:
        if not prefix:
            found.append("prefix part must be non-empty")
        found.extend(f"prefix part {rule}" for rule in (dns_subdomain(prefix) if prefix else ()))
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > NAME_LENGTH_MAX:
        found.append(f"name part {_too_long(NAME_LENGTH_MAX)}")
    if not _qualified.fullmatch(name):
        found.append(f"name part {_QUALIFIED_RULE}")
    return tuple(found)


@lru_cache(maxsize=8192)
def label_value(value: str) -> Rules:
    """Empty, or at most 63 characters that begin and end alphanumerically."""
    found = (_too_long(NAME_LENGTH_MAX),) if len(value) > NAME_LENGTH_MAX else ()
    return found if _label_value.fullmatch(value) else (*found, _LABEL_VALUE_RULE)


@lru_cache(maxsize=8192)
def dns_label(value: str) -> Rules:
    """An RFC 1123 label, as namespaces and containers are named."""
    found = (_too_long(NAME_LENGTH_MAX),) if len(value) > NAME_LENGTH_MAX else ()
    return found if _dns_label.fullmatch(value) else (*found, _DNS_LABEL_RULE)


@lru_cache(maxsize=8192)
def dns_subdomain(value: str) -> Rules:
    """An RFC 1123 subdomain, as nearly everything is named."""
    found = (_too_long(SUBDOMAIN_LENGTH_MAX),) if len(value) > SUBDOMAIN_LENGTH_MAX else ()
    return found if _dns_subdomain.fullmatch(value) else (*found, _DNS_SUBDOMAIN_RULE)


def percent(value: str) -> Rules:
    """A whole percentage, `30%`."""
    return () if _percent.fullmatch(value) else (_PERCENT_RULE,)


_PORT_NAME = re.compile(r"[-a-z0-9]+", re.ASCII)


def port_name(value: str) -> Rules:
    """An IANA service name."""
    checks = (
        (len(value) > 15, _too_long(15)),
        (
            not _PORT_NAME.fullmatch(value),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (not re.search("[a-z]", value), "must contain at least one letter (a-z)"),
        ("--" in value, "must not contain consecutive hyphens"),
        (value[:1] == "-" or value[-1:] == "-", "must not begin or end with a hyphen"),
    )
    return tuple(rule for broken, rule in checks if broken)
