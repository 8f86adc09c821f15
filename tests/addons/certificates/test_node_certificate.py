"""The node's own client certificate, and the client certificates that the hub verifies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from cryptography import x509

from addons.certificates import client_certificates
from addons.certificates.client_certificates import CONTEXTS, is_verified, node_of, server_side
from addons.certificates.node_certificate import IdentifiedSession, NodeCertificate, saved_credentials
from addons.certificates.serving_certificate import ServingCertificate
from addons.certificates.tls_port_certificate import own_certificate
from addons.requests.clients import Clients
from kube.concurrency.notifier import Notifier
from kube.http.kubeconfig import load_kubeconfig
from kube.http.session import Response, Session
from tests.addons.support.observed import until
from tests.addons.support.signing_cluster import AUTHORITY, SigningCluster
from tests.addons.support.tls_peers import client_context, shake_hands
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority
from tests.support.background import beside


@pytest.fixture
def bootstrap(tmp_path: Path) -> Path:
    return write_kubeconfig(
        tmp_path / "bootstrap.conf", "https://c", authority=AUTHORITY.certificate, token="a.b"
    )


@asynccontextmanager
async def running(made: NodeCertificate, cloud: SigningCluster) -> AsyncIterator[None]:
    async with beside(made.run(cast(Clients, cloud), Notifier())):
        yield


async def test_the_token_requests_the_first_certificate_and_the_node_renews_it(
    tmp_path: Path, bootstrap: Path
) -> None:
    cloud = SigningCluster()
    cloud.life = timedelta(seconds=2)
    made = NodeCertificate(bootstrap, "n1", tmp_path)
    assert not made.credentials.user.certificate.read()
    assert not made.credentials.user.bearer, "no request but the first ones travels with the token"
    async with running(made, cloud):
        await made.known.wait()
        first = made.credentials.user.certificate.read()
        cloud.life = timedelta(hours=1)
        await until(lambda: made.credentials.user.certificate.read() != first)
    assert cloud.callers == ["Bearer a.b", "hub"]
    saved = saved_credentials(load_kubeconfig(bootstrap), tmp_path)
    assert saved.user.certificate.read() == saved.user.key.read() == made.credentials.user.certificate.read()
    assert not saved.user.bearer


async def test_a_stored_certificate_needs_no_token(tmp_path: Path, bootstrap: Path) -> None:
    issued = AUTHORITY.issue_node("n1")
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "node.pem").write_bytes(issued.certificate + issued.key)
    cloud = SigningCluster()
    made = NodeCertificate(bootstrap, "n1", tmp_path)
    async with running(made, cloud):
        await made.known.wait()
    assert cloud.callers == []


@pytest.mark.parametrize(
    ("code", "message"),
    [(401, "rejects the token of"), (403, "system:node-bootstrapper"), (500, "says the cloud")],
)
async def test_a_refused_signing_request_is_reported_as_the_reason_until_it_succeeds(
    tmp_path: Path, bootstrap: Path, caplog: pytest.LogCaptureFixture, code: int, message: str
) -> None:
    cloud = SigningCluster()
    cloud.refusal = {"Bearer a.b": code}
    made = NodeCertificate(bootstrap, "n1", tmp_path)
    async with running(made, cloud):
        await until(lambda: message in caplog.text)
        assert not made.known.is_set()
        assert message in made.why_unknown
        assert not cloud.events, "a hub without an identity can send none"
        cloud.refusal = {}
        await until(made.known.is_set)
        assert not made.why_unknown


async def test_an_expired_identity_falls_back_to_the_bootstrap_token(tmp_path: Path, bootstrap: Path) -> None:
    ended = AUTHORITY.issue_node("n1", timedelta(seconds=-60))
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "node.pem").write_bytes(ended.certificate + ended.key)
    cloud = SigningCluster()
    cloud.refusal = {"Bearer a.b": 401}
    made = NodeCertificate(bootstrap, "n1", tmp_path)
    async with running(made, cloud):
        await made.known.wait()
        await until(lambda: bool(cloud.events))
        assert "kubeadm token create" in cloud.events[0]
        write_kubeconfig(bootstrap, "https://c", token="c.d")
        await until(lambda: not made.credentials.user.certificate.read().startswith(ended.certificate))
    assert cloud.callers[-1] == "Bearer c.d"
    assert "hub" not in cloud.callers


async def test_a_certificate_that_the_cloud_refuses_is_replaced_by_the_token(
    tmp_path: Path, bootstrap: Path
) -> None:
    """The certificate is valid by this node's clock, but not by the cloud's clock or CA."""
    cloud = SigningCluster()
    cloud.life = timedelta(seconds=2)
    cloud.refusal = {"hub": 401}
    async with running(NodeCertificate(bootstrap, "n1", tmp_path), cloud):
        await until(lambda: cloud.callers[-2:] == ["hub", "Bearer a.b"])


def test_a_kubeconfig_without_a_token_is_refused(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "conf", "https://c")
    with pytest.raises(ValueError, match="it has no bootstrap token"):
        NodeCertificate(path, "n1", tmp_path)


def test_without_a_certificate_the_bootstrap_token_is_the_credential(tmp_path: Path, bootstrap: Path) -> None:
    assert saved_credentials(load_kubeconfig(bootstrap), tmp_path).user.bearer == "Bearer a.b"


async def test_requests_with_the_hubs_identity_wait_for_the_certificate() -> None:
    class Opened:
        """Count the requests of a session."""

        count = 0

        @asynccontextmanager
        async def open(
            self,
            method: str,
            url: str,
            *,
            headers: Iterable[tuple[str, str]],
            body: bytes | None,
            timeout: float,
        ) -> AsyncIterator[Response]:
            self.count += 1
            yield cast(Response, None)

    opened, known = Opened(), asyncio.Event()
    session = IdentifiedSession(cast(Session, opened), known)

    async def ask() -> None:
        async with session.open("GET", "/", headers=(), body=None, timeout=1.0):
            pass

    waiting = asyncio.create_task(ask())
    await asyncio.sleep(0)
    assert opened.count == 0
    known.set()
    await waiting
    assert opened.count == 1


CLIENT_CA, FOREIGN = Authority(), Authority("foreign CA")


@pytest.mark.parametrize(
    ("user", "groups", "node"),
    [
        ("system:node:a", ["system:nodes"], "a"),
        ("system:node:a", ["other", "system:nodes"], "a"),
        ("system:node:a", [], ""),
        ("system:node:a", ["system:masters"], ""),
        ("a", ["system:nodes"], ""),
        ("system:node:", ["system:nodes"], ""),
        ("system:node:A", ["system:nodes"], ""),
        ("system:node:a,b/6.6.6.6", ["system:nodes"], ""),
    ],
)
def test_a_certificate_names_a_node_only_with_the_node_user_name_and_group(
    user: str, groups: list[str], node: str
) -> None:
    issued = CLIENT_CA.issue_client(user, groups)
    assert node_of(x509.load_pem_x509_certificate(issued.certificate)) == node


@pytest.mark.parametrize(("authority", "expected"), [(CLIENT_CA, True), (FOREIGN, False), (None, False)])
def test_a_client_certificate_is_verified_only_if_signed_by_the_clusters_ca(
    authority: Authority | None, expected: bool, tmp_path: Path
) -> None:
    own = own_certificate(tmp_path, ["127.0.0.1"])
    server = server_side(own, [x509.load_pem_x509_certificate(CLIENT_CA.certificate)])
    shown = authority.issue_node("a") if authority is not None else None
    shake_hands(server, client_context((tmp_path / "ca.crt").read_bytes(), shown), "127.0.0.1")
    assert is_verified(server) is expected


def test_connections_with_the_same_certificate_share_a_tls_context(tmp_path: Path) -> None:
    """A TLS context takes as much memory as the rest of a connection."""
    authority = x509.load_pem_x509_certificate(CLIENT_CA.certificate)
    own_certificate(tmp_path, ["127.0.0.1"])
    own = ServingCertificate(tmp_path / "serving.crt", tmp_path / "serving.key")
    shared = server_side(own, [authority]).get_context()
    assert server_side(own, [authority]).get_context() is shared
    assert server_side(own, []).get_context() is not shared
    own_certificate(tmp_path, ["127.0.0.2"])
    assert server_side(own, [authority]).get_context() is not shared, "the operator has put another one there"


def test_the_number_of_cached_tls_contexts_is_bounded(tmp_path: Path) -> None:
    for number in range(2 * CONTEXTS):
        own = own_certificate(tmp_path, [f"127.0.0.{number}"])
        last = server_side(own, []).get_context()
    assert len(client_certificates._contexts) == CONTEXTS
    assert server_side(own, []).get_context() is last


def test_an_unreadable_certificate_is_an_error_and_is_not_presented(tmp_path: Path) -> None:
    own_certificate(tmp_path, ["127.0.0.1"])
    own = ServingCertificate(tmp_path / "serving.crt", tmp_path / "serving.key")
    server_side(own, [])
    (tmp_path / "serving.key").unlink()
    with pytest.raises(OSError, match=r"serving\.key"):
        server_side(own, [])
