"""Whom the peer port admits, by real handshakes, and the counted reason for each refusal."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from addons.certificates.serving_certificate import Certificate
from addons.certificates.tls_port_certificate import own_certificate
from addons.pool.peer_admission import Admission
from addons.telemetry import metrics
from kube.errors import StatusError
from kube.peers import NODES_GROUP
from tests.addons.support.refusals import refuses
from tests.addons.support.tls_peers import client_context, shake_hands
from tests.cloud.pki import Authority, Credential

AUTHORITY, FOREIGN = Authority(), Authority("foreign CA")


class Door:
    """An admission, and connections to it."""

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
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


def refused(reason: str) -> float:
    return metrics.REGISTRY.get_sample_value("edgehub_peer_refused_total", {"reason": reason}) or 0.0


def test_a_node_of_the_pool_is_admitted_as_long_as_it_is_one(door: Door) -> None:
    door.connect("one", AUTHORITY.issue_node("a"))
    assert door.admission.admit("one", [("Accept", "*/*")], "10.0.0.1") == "a"
    door.members = frozenset({"b"})
    with refuses(403):
        door.admission.admit("one", [], "10.0.0.1")
    door.members = None
    with refuses(503):
        door.admission.admit("one", [], "10.0.0.1")


def test_a_node_that_is_admitted_says_where_its_own_peer_port_is(door: Door) -> None:
    door.connect("one", AUTHORITY.issue_node("a"))
    door.connect("two", AUTHORITY.issue_node("c"))
    door.admission.admit("one", [("X-Edgehub-Peer", "::")], "10.0.0.1")
    with pytest.raises(StatusError):
        door.admission.admit("two", [("X-Edgehub-Peer", "10.0.0.3")], "10.0.0.3")
    assert door.admission.deputies.named(["a", "c"]) == "a/10.0.0.1"
    assert door.admission.lenders.named(["a", "c"]) == "", (
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
def test_nobody_else_is(
    door: Door, credential: Credential | None, headers: list[tuple[str, str]], code: int, reason: str
) -> None:
    door.connect("one", credential)
    before = refused(reason)
    with refuses(code):
        door.admission.admit("one", headers, "10.0.0.1")
    assert refused(reason) == before + 1


def test_a_connection_that_has_ended_is_forgotten(door: Door) -> None:
    door.connect("one", AUTHORITY.issue_node("a"))
    door.admission.disconnected("one")
    with pytest.raises(StatusError):
        door.admission.admit("one", [], "10.0.0.1")


def test_without_a_certificate_no_handshake_begins(door: Door) -> None:
    door.certificate = None
    with pytest.raises(RuntimeError):
        door.admission.server_side()
