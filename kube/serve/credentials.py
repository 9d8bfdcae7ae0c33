"""Credentials for clients: a certificate, a token and the kubeconfig that holds both, made for one log and kept beside it.

    cluster.db.kubeconfig     address, certificate and token, mode 0600: who can read it may do everything
    cluster.db.tls            the certificate and its key, mode 0600

Both are kept over restarts, so that clients who were there before find the same server. A certificate that does not fit any more (another address,
soon to expire) is made anew.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import secrets
import ssl
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml

from tidelog.api.errors import TidelogError

DAYS = 3650
TOKEN_BYTES = 32
NAME = "tidelog"


class Certificate(NamedTuple):
    """A certificate with its key, as PEM."""

    path: Path
    certificate: str


def _private(path: str | os.PathLike[str], flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write(path: Path, text: str) -> None:
    """Replace the file as a whole; nobody else can read it at any moment."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        temporary.unlink(missing_ok=True)
        with open(temporary, "x", encoding="utf-8", opener=_private) as file:
            file.write(text)
        temporary.replace(path)
    except OSError as error:
        raise TidelogError(f"{path}: cannot be written: {error.strerror or error}") from error


def certificate(path: Path, host: str) -> Certificate:
    """The certificate at `path` for this host, made if there is none that fits."""
    known = _read(path)
    if known is not None and _fits(known, host):
        return Certificate(path, _only_certificate(known))
    text = _made(host)
    _write(path, text)
    return Certificate(path, _only_certificate(text))


def _read(path: Path) -> str | None:
    try:
        if path.stat().st_mode & 0o077:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _only_certificate(pem: str) -> str:
    start = pem.find("-----BEGIN CERTIFICATE-----")
    return pem[start:]


def _fits(pem: str, host: str) -> bool:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        load_pem_private_key(pem.encode(), None)
        found = x509.load_pem_x509_certificate(_only_certificate(pem).encode())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return False
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(days=30)
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return found.not_valid_after_utc > soon and host in (*addresses, *names.get_values_for_type(x509.DNSName))


def _made(host: str) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = dt.datetime.now(dt.UTC)
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.DNSName(NAME)]
    for address in dict.fromkeys(("127.0.0.1", "::1", host)):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        except ValueError:
            names.append(x509.DNSName(address))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
                key_agreement=False, key_cert_sign=True, crl_sign=False, encipher_only=False, decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (private + made.public_bytes(serialization.Encoding.PEM)).decode()


def server_context(found: Certificate, client_ca: Path | None = None) -> ssl.SSLContext:
    """TLS with this certificate; with `client_ca` those whose certificate it signed need no token."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(found.path)
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise TidelogError(f"{client_ca}: cannot be used as an authority for clients: {error}") from error
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


# --- the kubeconfig -----------------------------------------------------------------------------------------------------------


def kept_token(path: Path) -> str:
    """The token of the kubeconfig at `path`, if it is one that was written here; else a new one."""
    text = _read(path)
    if text is not None:
        try:
            data = yaml.safe_load(text)
            user = next(user for user in data["users"] if user["name"] == NAME)
            token = user["user"]["token"]
        except (yaml.YAMLError, KeyError, TypeError, StopIteration):
            token = ""
        if isinstance(token, str) and len(token) >= TOKEN_BYTES:
            return token
    return secrets.token_urlsafe(TOKEN_BYTES)


def write_kubeconfig(path: Path, server: str, token: str = "", certificate: str = "") -> None:
    """Write the kubeconfig, readable for its owner alone."""
    import base64

    cluster: dict[str, str] = {"server": server}
    if certificate:
        cluster["certificate-authority-data"] = base64.b64encode(certificate.encode()).decode()
    data = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token} if token else {}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "current-context": NAME,
    }
    if path.exists() and not _is_ours(path):
        raise TidelogError(f"{path}: there is another kubeconfig; name another file with --kubeconfig-out")
    _write(path, msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n")


def _is_ours(path: Path) -> bool:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        return data["current-context"] == NAME and [one["name"] for one in data["clusters"]] == [NAME]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return False


def read_tokens(path: Path) -> dict[str, str]:
    """Token → user of a file of lines `token,user,…`, as kube-apiserver's --token-auth-file. Raises TidelogError."""
    import csv

    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TidelogError(f"{path}: the tokens cannot be read: {error}") from error
    found: dict[str, str] = {}
    for number, row in enumerate(rows, start=1):
        if len(row) < 2 or len(row[0]) < 16 or not row[0].isascii() or not row[0].isprintable():
            raise TidelogError(
                f"{path}: line {number} must be a token of at least 16 characters, a comma, and a user"
            )
        found[row[0]] = row[1]
    if not found:
        raise TidelogError(f"{path}: there is no token in it")
    return found
