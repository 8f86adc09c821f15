"""The caller, by real handshakes on the TLS port: this node's certificate, another node's, an unknown one, or none."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Coroutine
from pathlib import Path
from typing import cast

import pytest
from mitmproxy import tls
from mitmproxy.options import Options as MitmproxyOptions
from mitmproxy.proxy.context import Context
from mitmproxy.test import tflow
from OpenSSL import SSL

from addons.certificates.serving_certificate import ServingCertificate
from addons.certificates.tls_port_certificate import TlsPortCertificate, own_certificate
from addons.identity import Identity
from addons.options import Options
from addons.requests.caller import Caller, CredentialSource, Listener
from addons.requests.request_context import begin, context_of
from kube.errors import StatusError, parse_status
from kube.http.kubeconfig import Cluster, Credentials, DataOrFile
from kube.requests.websocket_offer import WEBSOCKET_BEARER
from tests.addons.support.guarding import under_guard
from tests.addons.support.samples import request_context
from tests.addons.support.tls_peers import ClientHandshake, client_context, shake_hands
from tests.cloud.pki import Authority, Credential

NODE = "n1"


class Settings:
    """All settings that identity reads."""

    class settings:  # noqa: N801 - stands for the attribute of that name
        node = NODE
        plain_users = frozenset[int]()


def at_once(hook: Coroutine[None, None, None]) -> None:
    """Run a hook that never waits."""
    with pytest.raises(StopIteration):
        hook.send(None)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("cluster CA")


@pytest.fixture
def identity(authority: Authority, tmp_path: Path) -> Identity:
    made = under_guard(Identity(cast(Options, Settings())))
    credentials = Credentials(Cluster(authority=DataOrFile(authority.certificate)))
    own_certificate(tmp_path, ["127.0.0.1"])
    files = ServingCertificate(tmp_path / "serving.crt", tmp_path / "serving.key")
    made.serve_with(credentials, TlsPortCertificate(lambda: files))
    return made


class Connection:
    """A client's connection to the TLS port, driven as by mitmproxy."""

    def __init__(self, identity: Identity, folder: Path) -> None:
        self.identity = identity
        self.client = tflow.tclient_conn()
        self.data = tls.TlsData(self.client, Context(self.client, MitmproxyOptions()))
        self._authority = (folder / "ca.crt").read_bytes()

    def shake(
        self, credential: Credential | None = None, session: ssl.SSLSession | None = None,
        context: ssl.SSLContext | None = None,
    ) -> ClientHandshake:  # fmt: skip
        self.identity.tls_start_client(self.data)
        assert self.data.ssl_conn is not None
        trusting = context or client_context(self._authority, credential)
        shaken = shake_hands(self.data.ssl_conn, trusting, "127.0.0.1", session)
        self.identity.tls_established_client(self.data)
        return shaken

    def caller(self, listener: Listener = Listener.TLS, address: str = "10.0.0.9", **headers: str) -> Caller:
        """Return the caller to which a request on this connection is attributed."""
        flow = tflow.tflow(client_conn=self.client)
        self.client.peername = (address, 40000)
        for name, value in headers.items():
            flow.request.headers[name.replace("_", "-")] = value
        begin(flow, request_context("/api/v1/pods", listener=listener))
        at_once(self.identity.requestheaders(flow))
        found = context_of(flow)
        assert found is not None
        if flow.response is not None:
            raise parse_status(flow.response.content or b"", flow.response.status_code)
        return found.caller


@pytest.fixture
def connection(identity: Identity, tmp_path: Path) -> Connection:
    return Connection(identity, tmp_path)


def client_of(case: str, authority: Authority) -> Credential | None:
    stranger = Authority("a stranger's CA")
    match case:
        case "this node":
            return authority.issue_node(NODE)
        case "this node without its group":
            return authority.issue_client(f"system:node:{NODE}")
        case "another node":
            return authority.issue_node("n2")
        case "another node with a longer name":
            return authority.issue_node(f"{NODE}x")
        case "an admin":
            return authority.issue_admin()
        case "this node, by a stranger's CA":
            return stranger.issue_node(NODE)
        case "this node, by a CA of the same name":
            return Authority("cluster CA").issue_node(NODE)
        case "a server of this name":
            return authority.issue_server(f"system:node:{NODE}", ["127.0.0.1"])
    return None


@pytest.mark.parametrize(
    "case",
    [
        "this node without its group",
        "another node",
        "another node with a longer name",
        "an admin",
        "this node, by a stranger's CA",
        "this node, by a CA of the same name",
        "a server of this name",
    ],
)
def test_another_nodes_certificate_is_refused_unless_a_token_is_sent(
    connection: Connection, authority: Authority, case: str
) -> None:
    """The cloud would only answer that `system:anonymous` is not permitted, without the reason."""
    connection.shake(client_of(case, authority))
    with pytest.raises(StatusError, match="not known as this node's") as refused:
        connection.caller(address="127.0.0.1")
    assert refused.value.code == 401
    assert connection.caller(Authorization="Bearer t") == Caller(CredentialSource.OWN, "Bearer t")


@pytest.mark.parametrize(
    ("case", "credential_source"), [("this node", CredentialSource.HUB), ("none", CredentialSource.NONE)]
)
def test_the_client_certificate_decides_who_gets_the_identity_of_the_hub(
    connection: Connection, authority: Authority, case: str, credential_source: CredentialSource
) -> None:
    connection.shake(client_of(case, authority))
    assert connection.caller().credential_source is credential_source
    assert connection.caller(address="127.0.0.1").credential_source is credential_source, (
        "where it comes from does not matter"
    )


def test_a_callers_own_credentials_override_this_nodes_certificate(
    connection: Connection, authority: Authority
) -> None:
    connection.shake(authority.issue_node(NODE))
    assert connection.caller(Authorization="Bearer t") == Caller(CredentialSource.OWN, "Bearer t")
    protocols = f"{WEBSOCKET_BEARER}dG9rZW4"
    assert connection.caller(Sec_WebSocket_Protocol=protocols).credential_source is CredentialSource.OWN
    assert connection.caller(Impersonate_User="admin").impersonates


def test_headers_of_front_proxies_and_of_the_hub_are_removed(connection: Connection) -> None:
    """The node's certificate may be signed by the CA that is trusted for front proxies."""
    flow = tflow.tflow(client_conn=connection.client)
    for name in (
        "X-Remote-User",
        "x-remote-group",
        "X-REMOTE-EXTRA-scopes",
        "X-Remote-Uid",
        "X-Other",
        "X-Edgehub-Ticket",
    ):
        flow.request.headers.add(name, "system:masters")
    begin(flow, request_context("/api/v1/pods", listener=Listener.PLAIN))
    connection.client.peername = ("127.0.0.1", 40000)
    at_once(connection.identity.requestheaders(flow))
    assert [name for name in flow.request.headers if name.lower().startswith("x-")] == ["X-Other"]


def test_a_handshake_identifies_its_own_connection_only(
    identity: Identity, authority: Authority, tmp_path: Path
) -> None:
    proven, other = Connection(identity, tmp_path), Connection(identity, tmp_path)
    proven.shake(authority.issue_node(NODE))
    other.shake()
    assert (proven.caller().credential_source, other.caller().credential_source) == (
        CredentialSource.HUB,
        CredentialSource.NONE,
    )


def test_a_closed_connection_has_no_identity(connection: Connection, authority: Authority) -> None:
    connection.shake(authority.issue_node(NODE))
    connection.identity.client_disconnected(connection.client)
    assert connection.caller().credential_source is CredentialSource.NONE


def test_a_client_certificate_is_used_on_the_tls_port_only(
    connection: Connection, authority: Authority
) -> None:
    connection.shake(authority.issue_node(NODE))
    assert connection.caller(Listener.PLAIN).credential_source is CredentialSource.NONE


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_tls_session_is_a_full_handshake(
    identity: Identity, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """A ticket of one connection must neither fail the next one, as Go's clients try it, nor identify its caller."""
    first = Connection(identity, tmp_path)
    context = client_context((tmp_path / "ca.crt").read_bytes(), authority.issue_node(NODE))
    context.minimum_version = context.maximum_version = version
    shaken = first.shake(context=context)
    second = Connection(identity, tmp_path)
    resumed = second.shake(context=context, session=shaken.client.session)
    assert not resumed.client.session_reused
    assert second.caller().credential_source is CredentialSource.HUB


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [(["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"), (["http/1.1", "h2"], "h2"), (["spdy/3"], None)],
)
def test_http2_is_preferred_over_http1_in_the_tls_handshake(
    connection: Connection, tmp_path: Path, offers: list[str], chosen: str | None
) -> None:
    context = client_context((tmp_path / "ca.crt").read_bytes())
    context.set_alpn_protocols(offers)
    assert connection.shake(context=context).client.selected_alpn_protocol() == chosen


def test_before_the_hub_has_started_no_handshake_succeeds(tmp_path: Path) -> None:
    own_certificate(tmp_path, ["127.0.0.1"])
    connection = Connection(under_guard(Identity(cast(Options, Settings()))), tmp_path)
    with pytest.raises((ValueError, SSL.Error)):
        connection.shake()


def test_an_unreadable_certificate_ends_the_handshake(connection: Connection, tmp_path: Path) -> None:
    (tmp_path / "serving.crt").write_text("garbage")
    with pytest.raises((ValueError, SSL.Error)):
        connection.shake()


@pytest.mark.parametrize("certificate", [b"", b"\n"])
def test_no_certificate_identifies_the_node_without_a_cluster_ca(
    authority: Authority, tmp_path: Path, certificate: bytes
) -> None:
    made = under_guard(Identity(cast(Options, Settings())))
    credentials = Credentials(Cluster(authority=DataOrFile(certificate)))
    own = own_certificate(tmp_path, ["127.0.0.1"])
    made.serve_with(credentials, TlsPortCertificate(lambda: own))
    connection = Connection(made, tmp_path)
    connection.shake(authority.issue_node(NODE))
    with pytest.raises(StatusError, match="not known as this node's"):
        connection.caller()


def test_a_handshake_whose_hook_fails_lends_no_identity(
    connection: Connection, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mitmproxy ignores an error of this hook: the connection stays open, but has no caller."""

    def fail(*_: object) -> bool:
        raise RuntimeError("broken")

    monkeypatch.setattr(Identity, "_is_this_node", fail)
    connection.shake(authority.issue_node(NODE))
    assert connection.caller().credential_source is CredentialSource.NONE


@pytest.mark.parametrize(
    ("listener", "address", "credential_source"),
    [
        (Listener.PLAIN, "127.0.0.1", CredentialSource.HUB),
        (Listener.PLAIN, "127.8.9.10", CredentialSource.HUB),
        (Listener.PLAIN, "::1", CredentialSource.HUB),
        (Listener.PLAIN, "10.0.0.1", CredentialSource.NONE),
        (Listener.PLAIN, "fe80::1%eth0", CredentialSource.NONE),
        (Listener.TLS, "127.0.0.1", CredentialSource.NONE),
    ],
)
def test_callers_of_the_plain_port_are_identified_by_address(
    connection: Connection, listener: Listener, address: str, credential_source: CredentialSource
) -> None:
    assert connection.caller(listener, address).credential_source is credential_source


def test_an_unresolved_request_is_refused(identity: Identity) -> None:
    flow = tflow.tflow()
    at_once(identity.requestheaders(flow))
    assert flow.response is not None
    assert flow.response.status_code == 500


@pytest.mark.parametrize(("users", "code"), [({os.geteuid()}, 0), ({os.geteuid() + 1}, 403), ((), 0)])
async def test_the_plain_port_may_be_restricted_to_some_users(
    identity: Identity, monkeypatch: pytest.MonkeyPatch, users: set[int], code: int
) -> None:
    monkeypatch.setattr(Settings.settings, "plain_users", frozenset(users))
    flow = tflow.tflow()
    begin(flow, request_context("/api/v1/pods", listener=Listener.PLAIN))
    accepted: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    _, own = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    theirs = await accepted
    flow.client_conn.peername = theirs.get_extra_info("peername")
    flow.client_conn.sockname = theirs.get_extra_info("sockname")
    try:
        # The kernel reports the user of an open connection, but not of one that either side has closed.
        for _ in range(2):
            await identity.requestheaders(flow)
            assert (flow.response.status_code if flow.response else 0) == code
    finally:
        for writer in (own, theirs):
            writer.close()
            await writer.wait_closed()
        server.close()


async def test_a_connection_with_an_unknown_user_is_403(
    identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer is on another machine, or has closed its socket, for which the kernel reports user 0."""
    monkeypatch.setattr(Settings.settings, "plain_users", frozenset({0}))
    flow = tflow.tflow()
    begin(flow, request_context("/api/v1/pods", listener=Listener.PLAIN))
    flow.client_conn.peername, flow.client_conn.sockname = ("127.0.0.1", 1), ("127.0.0.1", 2)
    await identity.requestheaders(flow)
    assert flow.response is not None
    assert flow.response.status_code == 403
