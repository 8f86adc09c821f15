"""The test cluster's certificates."""

from __future__ import annotations

import ssl
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID

from tests.cloud.pki import Authority, Credential, signing_key

AUTHORITY = Authority()
SERVER = AUTHORITY.issue_server("server", ["127.0.0.1", "localhost"])
CLIENT = AUTHORITY.issue_client("somebody")


def names(credential: Credential, kind: x509.ObjectIdentifier) -> list[str]:
    subject = x509.load_pem_x509_certificate(credential.certificate).subject
    return [str(attribute.value) for attribute in subject.get_attributes_for_oid(kind)]


def shake_hands(
    folder: Path, server: Credential, client: Credential, host: str, authority: Authority = AUTHORITY
) -> None:
    """A TLS handshake in memory, both sides strict about the certificate of the other; raises SSLError."""
    contexts = []
    for credential, protocol in ((server, ssl.PROTOCOL_TLS_SERVER), (client, ssl.PROTOCOL_TLS_CLIENT)):
        context = ssl.SSLContext(protocol)
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cadata=authority.certificate.decode())
        context.load_cert_chain(*credential.write(folder, protocol.name))
        contexts.append(context)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        contexts[1].wrap_bio(to_client, to_server, server_hostname=host),
        contexts[0].wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert [side.version() for side in sides] == ["TLSv1.3", "TLSv1.3"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_strict_peers_trust_each_other(tmp_path: Path, host: str) -> None:
    shake_hands(tmp_path, SERVER, CLIENT, host)


@pytest.mark.parametrize(
    ("server", "client", "host", "reason"),
    [
        (SERVER, CLIENT, "127.0.0.2", "mismatch"),
        (SERVER, CLIENT, "example.org", "mismatch"),
        (CLIENT, CLIENT, "localhost", "purpose"),
        (SERVER, SERVER, "localhost", "purpose"),
    ],
)
def test_a_certificate_is_good_for_its_purpose_only(
    tmp_path: Path, server: Credential, client: Credential, host: str, reason: str
) -> None:
    with pytest.raises(ssl.SSLError, match=reason):
        shake_hands(tmp_path, server, client, host)


def test_another_authority_is_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLError, match="certificate verify failed"):
        shake_hands(tmp_path, SERVER, CLIENT, "localhost", authority=Authority())


@pytest.mark.parametrize(
    ("issue", "user", "groups"),
    [
        (lambda: AUTHORITY.issue_node("edge-1"), "system:node:edge-1", ["system:nodes"]),
        (AUTHORITY.issue_admin, "admin", ["system:masters"]),
        (lambda: AUTHORITY.issue_client("ann", ["a", "b"]), "ann", ["a", "b"]),
        (lambda: CLIENT, "somebody", []),
    ],
)
def test_a_client_is_who_its_certificate_says(
    issue: Callable[[], Credential], user: str, groups: list[str]
) -> None:
    credential = issue()
    assert names(credential, NameOID.COMMON_NAME) == [user]
    assert names(credential, NameOID.ORGANIZATION_NAME) == groups


def test_keys_are_for_their_owner(tmp_path: Path) -> None:
    certificate, key = CLIENT.write(tmp_path, "client")
    assert (certificate.read_bytes(), key.read_bytes()) == (CLIENT.certificate, CLIENT.key)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_each_signing_key_is_new() -> None:
    assert isinstance(load_pem_private_key(signing_key(), None), ec.EllipticCurvePrivateKey)
    assert signing_key() != signing_key()
