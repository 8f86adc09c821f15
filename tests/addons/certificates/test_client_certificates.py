"""The node that a client certificate is for, by real handshakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from addons.certificates import client_certificates
from addons.certificates.client_certificates import CONTEXTS, is_verified, node_of, server_side
from addons.certificates.serving_certificate import ServingCertificate
from addons.certificates.tls_port_certificate import own_certificate
from tests.addons.support.tls_peers import client_context, shake_hands
from tests.cloud.pki import Authority

AUTHORITY, FOREIGN = Authority(), Authority("foreign CA")


@pytest.mark.parametrize(
    ("user", "groups", "node"),
    [
        ("system:node:a", ["system:nodes"], "a"),
        ("system:node:a", ["other", "system:nodes"], "a"),
        ("system:node:a", [], ""),
        ("system:node:a", ["system:masters"], ""),
        ("a", ["system:nodes"], ""),
        ("system:node:", ["system:nodes"], ""),
        ("system:node:a,b/6.6.6.6", ["system:nodes"], ""),
    ],
)
def test_a_node_is_a_name_and_a_group(user: str, groups: list[str], node: str) -> None:
    issued = AUTHORITY.issue_client(user, groups)
    assert node_of(x509.load_pem_x509_certificate(issued.certificate)) == node


@pytest.mark.parametrize(("authority", "expected"), [(AUTHORITY, True), (FOREIGN, False), (None, False)])
def test_a_certificate_counts_when_the_clusters_ca_has_signed_it(
    authority: Authority | None, expected: bool, tmp_path: Path
) -> None:
    own = own_certificate(tmp_path, ["127.0.0.1"])
    server = server_side(own, [x509.load_pem_x509_certificate(AUTHORITY.certificate)])
    shown = authority.issue_node("a") if authority is not None else None
    shake_hands(server, client_context((tmp_path / "ca.crt").read_bytes(), shown), "127.0.0.1")
    assert is_verified(server) is expected


def test_connections_that_show_the_same_share_a_context(tmp_path: Path) -> None:
    """A context costs as much memory as the rest of a connection."""
    authority = x509.load_pem_x509_certificate(AUTHORITY.certificate)
    own_certificate(tmp_path, ["127.0.0.1"])
    own = ServingCertificate(tmp_path / "serving.crt", tmp_path / "serving.key")
    shared = server_side(own, [authority]).get_context()
    assert server_side(own, [authority]).get_context() is shared
    assert server_side(own, []).get_context() is not shared
    own_certificate(tmp_path, ["127.0.0.2"])
    assert server_side(own, [authority]).get_context() is not shared, "the operator has put another one there"


def test_few_contexts_are_remembered(tmp_path: Path) -> None:
    for number in range(2 * CONTEXTS):
        own = own_certificate(tmp_path, [f"127.0.0.{number}"])
        last = server_side(own, []).get_context()
    assert len(client_certificates._contexts) == CONTEXTS
    assert server_side(own, []).get_context() is last


def test_a_certificate_that_cannot_be_read_is_shown_to_nobody(tmp_path: Path) -> None:
    own_certificate(tmp_path, ["127.0.0.1"])
    own = ServingCertificate(tmp_path / "serving.crt", tmp_path / "serving.key")
    server_side(own, [])
    (tmp_path / "serving.key").unlink()
    with pytest.raises(OSError, match=r"serving\.key"):
        server_side(own, [])
