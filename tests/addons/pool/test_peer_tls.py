"""The certificates that a follower accepts as a leader's, by real handshakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from OpenSSL import SSL

from addons.certificates.client_certificates import is_verified, node_of, server_side
from addons.certificates.serving_certificate import ServingCertificate
from addons.link.servers import Server, parse_relays
from addons.pool.peer_tls import is_hub_of, peer_connection
from kube.http.kubeconfig import Credentials, Piece
from tests.addons.support.tls_peers import shake
from tests.cloud.pki import Authority, Credential

AUTHORITY, FOREIGN, CLIENTS = Authority(), Authority("foreign CA"), Authority("client CA")
LEADER = Server("https", "10.0.0.1", 10269, "a")


def connect(folder: Path, shown: Credential, others: list[x509.Certificate] | None = None) -> SSL.Connection:
    """The leader's end of a handshake with a follower of node b; OpenSSL.SSL.Error where the follower gives up."""
    own = AUTHORITY.issue_node("b")
    trusted = Piece(AUTHORITY.certificate)
    credentials = Credentials("", "", False, trusted, Piece(own.certificate), Piece(own.key), Piece())
    client = peer_connection(credentials, lambda: others or [], LEADER, [b"h2"])
    certificate = ServingCertificate(*shown.write(folder, "leader"))
    server = server_side(certificate, [x509.load_pem_x509_certificate(AUTHORITY.certificate)])
    shake(client, server)
    assert server.get_alpn_proto_negotiated() == b"h2"
    return server


@pytest.mark.parametrize(
    "issue",
    [
        lambda: AUTHORITY.issue_server("whoever", ["10.0.0.1"]),
        lambda: AUTHORITY.issue_server("whoever", ["a"]),
        lambda: AUTHORITY.issue_server("system:node:a", ["10.9.9.9"], ["system:nodes"]),
    ],
)
def test_a_leader_is_its_address_its_name_or_its_node(
    issue: Callable[[], Credential], tmp_path: Path
) -> None:
    server = connect(tmp_path, issue())
    assert is_verified(server)
    shown = server.get_peer_certificate()
    assert shown is not None
    assert node_of(shown.to_cryptography()) == "b"


@pytest.mark.parametrize(
    "issue",
    [
        lambda: AUTHORITY.issue_server("whoever", ["10.0.0.2", "c"]),
        lambda: AUTHORITY.issue_server("system:node:c", ["c"], ["system:nodes"]),
        lambda: AUTHORITY.issue_server("system:node:a", ["c"]),
        lambda: FOREIGN.issue_server("whoever", ["10.0.0.1"]),
        lambda: CLIENTS.issue_server("whoever", ["10.0.0.1"]),
        # A client certificate of the node is none for a server.
        lambda: AUTHORITY.issue_node("a"),
    ],
)
def test_nobody_else_is(issue: Callable[[], Credential], tmp_path: Path) -> None:
    with pytest.raises(SSL.Error):
        connect(tmp_path, issue())


def test_the_cas_that_the_cluster_publishes_count_too(tmp_path: Path) -> None:
    published = [x509.load_pem_x509_certificate(CLIENTS.certificate)]
    leader = CLIENTS.issue_server("whoever", ["10.0.0.1"])
    assert is_verified(connect(tmp_path, leader, published))


@pytest.mark.parametrize(
    ("host", "names", "good"),
    [
        ("relay.example", ["relay.example"], True),
        ("10.0.0.9", ["10.0.0.9"], True),
        ("relay.example", ["other.example"], False),
        ("relay.example", ["10.0.0.9"], False),
    ],
)
def test_a_relay_is_its_name_or_its_address(host: str, names: list[str], good: bool) -> None:
    (relay,) = parse_relays(f"https://{host}:10269")
    shown = x509.load_pem_x509_certificate(AUTHORITY.issue_server("whoever", names).certificate)
    assert is_hub_of(shown, relay) is good
