"""Kubernetes' functions of addresses: IP, CIDR, and the parts of URLs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.api.cel.declarations import Function, member, of
from tidelog.api.cel.errors import EvaluationError
from tidelog.api.cel.types import BOOL, CIDR, INT, IP, STRING, URL, list_of, map_of
from tidelog.api.cel.values import CelMap, Opaque

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_TEXT_MAX = 8192
_PREFIX = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_VALID_PATH = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/%\[\]]*", re.ASCII)
_UNESCAPED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~$&+,/:;=@")
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:\x00-\x20\x7f#%\\^`{|}]*)(?::(?P<port>[0-9]*))?")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class IPValue(Opaque):
    """An address of the standard library."""

    __slots__ = ()
    type = IP
    value: _Address


class CIDRValue(Opaque):
    """(address, length of the prefix)."""

    __slots__ = ()
    type = CIDR
    value: tuple[_Address, int]

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.value[0]}/{self.value[1]}"


class Parts(NamedTuple):
    """The parts of a URL."""

    scheme: str
    host: str
    path: str
    query: str


class URLValue(Opaque):
    """Its parts."""

    __slots__ = ()
    type = URL
    value: Parts


def _address(text: str) -> _Address:
    try:
        found = ipaddress.ip_address(text) if len(text) <= 64 and "%" not in text else None
    except ValueError:
        found = None
    if found is None or (isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None):
        raise EvaluationError("not a supported IP address")
    return found


def _ip(text: str) -> IPValue:
    return IPValue(_address(text))


def _cidr(text: str) -> CIDRValue:
    head, slash, tail = text.rpartition("/")
    address = _address(head)
    if not slash or not _PREFIX.fullmatch(tail) or int(tail) > address.max_prefixlen:
        raise EvaluationError("not a network address")
    return CIDRValue((address, int(tail)))


def _masked(network: CIDRValue) -> CIDRValue:
    address, length = network.value
    return CIDRValue((_bits(address, length), length))


def _bits(address: _Address, length: int) -> _Address:
    hidden = address.max_prefixlen - length
    return type(address)(int(address) >> hidden << hidden)


def _holds(network: CIDRValue, address: IPValue) -> bool:
    base, length = network.value
    return base.version == address.value.version and _bits(base, length) == _bits(address.value, length)


def _holds_network(network: CIDRValue, other: CIDRValue) -> bool:
    return other.value[1] >= network.value[1] and _holds(network, IPValue(other.value[0]))


def _is_global_unicast(address: IPValue) -> bool:
    ip = address.value
    if isinstance(ip, ipaddress.IPv4Address) and int(ip) == (1 << 32) - 1:
        return False
    return not (ip.is_unspecified or ip.is_loopback or ip.is_multicast or _is_link_local(address))


def _is_link_local(address: IPValue) -> bool:
    return address.value.is_link_local


def _is_link_local_multicast(address: IPValue) -> bool:
    ip = address.value
    if isinstance(ip, ipaddress.IPv4Address):
        return int(ip) >> 8 == 0xE00000
    return int(ip) >> 112 & 0xFF0F == 0xFF02


def url_of(text: str) -> URLValue:
    """As Go reads the URI of a request: with a scheme, or a path from the root; `#` begins no fragment. Raises EvaluationError."""
    problem = EvaluationError("URL parse error during conversion from string")
    if not text or len(text) > _TEXT_MAX or any(c < " " or c == "\x7f" for c in text):
        raise problem
    found = _SCHEME.match(text)
    scheme = found[1].lower() if found else ""
    rest, _, query = text[found.end() if found else 0 :].partition("?")
    host = ""
    if not rest.startswith("/") and text != "*":
        if not scheme:
            raise problem
        return URLValue(Parts(scheme, "", "", query))
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        host, rest = authority.rpartition("@")[2], slash + path
    if not _HOST.fullmatch(host) or _BAD_ESCAPE.search(rest):
        raise problem
    return URLValue(Parts(scheme, host, rest, query))


def _hostname(url: URLValue) -> str:
    found = _HOST.fullmatch(url.value.host)
    return found["name"].strip("[]") if found else ""


def _port(url: URLValue) -> str:
    found = _HOST.fullmatch(url.value.host)
    return (found["port"] or "") if found else ""


def _escaped_path(url: URLValue) -> str:
    path = url.value.path
    if path == "*" or _VALID_PATH.fullmatch(path):
        return path
    return "".join(chr(b) if chr(b) in _UNESCAPED else f"%{b:02X}" for b in _unescaped(path))


def _unescaped(text: str) -> bytes:
    """The bytes, with those written as %XX."""
    head, *escaped = text.encode("utf-8", "replace").split(b"%")
    return head + b"".join(bytes([int(part[:2], 16)]) + part[2:] for part in escaped)


def _plain(text: str) -> str:
    return _unescaped(text.replace("+", " ")).decode("utf-8", "replace")


def _query(url: URLValue) -> CelMap:
    """Name → values. As in Go, what has a semicolon or a broken escape is left out."""
    found: dict[str, list[str]] = {}
    for part in url.value.query.split("&"):
        if part and ";" not in part and not _BAD_ESCAPE.search(part):
            name, _, value = part.partition("=")
            found.setdefault(_plain(name), []).append(_plain(value))
    return CelMap.of_strings(found)


def _is(make: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            make(text)
        except EvaluationError:
            return False
        return True

    return check


def _of_ip(name: str, run: Callable[[IPValue], Any]) -> Function:
    return Function(name, (member((IP,), BOOL, run),))


FUNCTIONS: tuple[Function, ...] = (
    Function("ip", (of((STRING,), IP, _ip), member((CIDR,), IP, lambda network: IPValue(network.value[0])))),
    Function("isIP", (of((STRING,), BOOL, _is(_ip)),)),
    Function("ip.isCanonical", (of((STRING,), BOOL, lambda text: str(_address(text)) == text),)),
    Function("family", (member((IP,), INT, lambda address: address.value.version),)),
    _of_ip("isUnspecified", lambda address: address.value.is_unspecified),
    _of_ip("isLoopback", lambda address: address.value.is_loopback),
    _of_ip("isLinkLocalMulticast", _is_link_local_multicast),
    _of_ip("isLinkLocalUnicast", _is_link_local),
    _of_ip("isGlobalUnicast", _is_global_unicast),
    Function("cidr", (of((STRING,), CIDR, _cidr),)),
    Function("isCIDR", (of((STRING,), BOOL, _is(_cidr)),)),
    Function("prefixLength", (member((CIDR,), INT, lambda network: network.value[1]),)),
    Function("masked", (member((CIDR,), CIDR, _masked),)),
    Function(
        "containsIP",
        (
            member((CIDR, STRING), BOOL, lambda network, text: _holds(network, _ip(text))),
            member((CIDR, IP), BOOL, _holds),
        ),
    ),
    Function(
        "containsCIDR",
        (
            member((CIDR, STRING), BOOL, lambda network, text: _holds_network(network, _cidr(text))),
            member((CIDR, CIDR), BOOL, _holds_network),
        ),
    ),
    Function("url", (of((STRING,), URL, url_of),)),
    Function("isURL", (of((STRING,), BOOL, _is(url_of)),)),
    Function("getScheme", (member((URL,), STRING, lambda url: url.value.scheme),)),
    Function("getHost", (member((URL,), STRING, lambda url: url.value.host),)),
    Function("getHostname", (member((URL,), STRING, _hostname),)),
    Function("getPort", (member((URL,), STRING, _port),)),
    Function("getEscapedPath", (member((URL,), STRING, _escaped_path),)),
    Function("getQuery", (member((URL,), map_of(STRING, list_of(STRING)), _query),)),
)
