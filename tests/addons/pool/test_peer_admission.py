"""Admission at the peer port: the admitted nodes, and their TLS handshakes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from OpenSSL import SSL

from addons.certificates.client_certificates import is_verified, node_of, server_side
from addons.certificates.serving_certificate import Certificate, ServingCertificate
from addons.certificates.tls_port_certificate import own_certificate
from addons.link.servers import Server, parse_relays
from addons.pool.peer_admission import Admission
from addons.pool.peer_tls import is_hub_of, peer_connection
from addons.telemetry import metrics
from kube.errors import StatusError
from kube.http.kubeconfig import Cluster, Credentials, DataOrFile, User
from kube.peers import NODES_GROUP
from tests.addons.support.refusals import refuses
from tests.addons.support.tls_peers import client_context, shake, shake_hands
from tests.cloud.pki import Authority, Credential

AUTHORITY, FOREIGN, CLIENTS = Authority(), Authority("foreign CA"), Authority("client CA")


class AdmissionScene:
    """An admission with connections to it."""

    def __init__(self, folder: Path) -> None:
        self.certificate: Certificate | None = own_certificate(folder, ["127.0.0.1"])
        self.members: frozenset[str] | None = frozenset({"a", "b"})
        self.admission = Admission(
            lambda: self.certificate,
            lambda: [x509.load_pem_x509_certificate(AUTHORITY.certificate)],
            lambda node: node in self.members if self.members is not None else None,
        )
        self._trusted = (folder / "ca.crt").read_bytes()

    def connect(self, name: str, credential: Credential | None) -> None:
        server = self.admission.server_side()
        shake_hands(server, client_context(self._trusted, credential), "127.0.0.1")
        self.admission.established(name, server)


@pytest.fixture
def scene(tmp_path: Path) -> AdmissionScene:
    return AdmissionScene(tmp_path)


def test_a_node_is_admitted_as_long_as_it_is_a_member_of_the_pool(scene: AdmissionScene) -> None:
    scene.connect("one", AUTHORITY.issue_node("a"))
    assert scene.admission.admit("one", [("Accept", "*/*")], "10.0.0.1") == "a"
    scene.members = frozenset({"b"})
    with refuses(403):
        scene.admission.admit("one", [], "10.0.0.1")
    scene.members = None
    with refuses(503):
        scene.admission.admit("one", [], "10.0.0.1")


def test_an_admitted_node_announces_its_peer_port(scene: AdmissionScene) -> None:
    scene.connect("one", AUTHORITY.issue_node("a"))
    scene.connect("two", AUTHORITY.issue_node("c"))
    scene.admission.admit("one", [("X-Edgehub-Peer", "::")], "10.0.0.1")
    with pytest.raises(StatusError):
        scene.admission.admit("two", [("X-Edgehub-Peer", "10.0.0.3")], "10.0.0.3")
    assert scene.admission.deputies.named(["a", "c"]) == "a/10.0.0.1"
    assert scene.admission.lenders.named(["a", "c"]) == "", (
        "it has not said that it lends its way to the cloud"
    )


@pytest.mark.parametrize(
    ("credential", "headers", "code", "reason"),
    [
        (None, [], 401, "no certificate"),
        (FOREIGN.issue_node("a"), [], 401, "untrusted certificate"),
        (AUTHORITY.issue_client("a"), [], 403, "no node"),
        (AUTHORITY.issue_admin(), [], 403, "no node"),
        (AUTHORITY.issue_client("a", [NODES_GROUP]), [], 403, "no node"),
        (AUTHORITY.issue_client("system:node:", [NODES_GROUP]), [], 403, "no node"),
        (AUTHORITY.issue_client("system:node:a", ["system:masters"]), [], 403, "no node"),
        (AUTHORITY.issue_node("a", timedelta(minutes=-1)), [], 401, "untrusted certificate"),
        (AUTHORITY.issue_server("system:node:a", ["a"], [NODES_GROUP]), [], 401, "untrusted certificate"),
        (AUTHORITY.issue_node("c"), [], 403, "other pool"),
        (AUTHORITY.issue_node("a"), [("authorization", "Bearer x")], 401, "token"),
        (AUTHORITY.issue_node("a"), [("Impersonate-User", "b")], 401, "token"),
    ],
)
def test_callers_without_membership_in_the_pool_are_refused(
    scene: AdmissionScene,
    credential: Credential | None,
    headers: list[tuple[str, str]],
    code: int,
    reason: str,
) -> None:
    def refused(reason: str) -> float:
        return metrics.REGISTRY.get_sample_value("edgehub_peer_refused_total", {"reason": reason}) or 0.0

    scene.connect("one", credential)
    before = refused(reason)
    with refuses(code):
        scene.admission.admit("one", headers, "10.0.0.1")
    assert refused(reason) == before + 1


def test_a_closed_connection_is_removed(scene: AdmissionScene) -> None:
    scene.connect("one", AUTHORITY.issue_node("a"))
    scene.admission.disconnected("one")
    with pytest.raises(StatusError):
        scene.admission.admit("one", [], "10.0.0.1")


def test_no_handshake_begins_without_a_certificate(scene: AdmissionScene) -> None:
    scene.certificate = None
    with pytest.raises(RuntimeError):
        scene.admission.server_side()


LEADER = Server("https", "10.0.0.1", 10269, "a")


def connect(folder: Path, shown: Credential, others: list[x509.Certificate] | None = None) -> SSL.Connection:
    """Complete the leader's side of a handshake with a follower on node b; OpenSSL.SSL.Error if the follower
    refuses."""
    own = AUTHORITY.issue_node("b")
    user = User(DataOrFile(own.certificate), DataOrFile(own.key))
    credentials = Credentials(Cluster(authority=DataOrFile(AUTHORITY.certificate)), user)
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
def test_a_leaders_certificate_names_its_address_its_name_or_its_node(
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
        # A client certificate of the node is not valid for a server.
        lambda: AUTHORITY.issue_node("a"),
    ],
)
def test_a_foreign_certificate_fails_the_handshake(issue: Callable[[], Credential], tmp_path: Path) -> None:
    with pytest.raises(SSL.Error):
        connect(tmp_path, issue())


def test_the_cas_that_the_cluster_publishes_are_trusted_too(tmp_path: Path) -> None:
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
def test_a_relays_certificate_names_its_name_or_its_address(host: str, names: list[str], good: bool) -> None:
    (relay,) = parse_relays(f"https://{host}:10269")
    shown = x509.load_pem_x509_certificate(AUTHORITY.issue_server("whoever", names).certificate)
    assert is_hub_of(shown, relay) is good
