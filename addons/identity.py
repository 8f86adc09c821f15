"""Says who calls: by listener, by headers, and on the TLS port by client certificate."""

from __future__ import annotations

import asyncio
import ipaddress
from pathlib import Path

from cryptography.x509.oid import NameOID
from mitmproxy import connection, http, tls
from OpenSSL import SSL, crypto

from addons.certificates.own_certificate import Certificate
from addons.options import Options
from addons.proxy.fail_closed import guarded, guarded_connection
from addons.requests.caller import Listener, Peer, caller_of
from addons.requests.headers import LENDING_HEADER
from addons.requests.hidden_credentials import headers_of
from addons.requests.peer_user import table_of, user_of
from addons.requests.request_context import context_of
from kube.errors import forbidden, internal
from kube.http.kubeconfig import Credentials

ALPN = (b"h2", b"http/1.1")


class Identity:
    """Terminates TLS for pods, and adds the caller to each request context."""

    name = "edgehub-identity"

    def __init__(self, options: Options) -> None:
        self._options = options
        self._credentials: Credentials | None = None
        self._certificate: Certificate | None = None
        self._verified: set[str] = set()
        self._users: dict[str, int | None] = {}
        """The user at the other end of a connection of the plain port, by the connection's id."""

    def serve_with(self, credentials: Credentials, certificate: Certificate) -> None:
        """Take the cluster's CA, which client certificates are checked against, and the TLS port's certificate."""
        self._credentials, self._certificate = credentials, certificate

    @guarded_connection
    def tls_start_client(self, data: tls.TlsData) -> None:
        data.ssl_conn = self._server_side()

    @guarded_connection
    def tls_established_client(self, data: tls.TlsData) -> None:
        if data.ssl_conn is not None and self._is_this_node(data.ssl_conn):
            self._verified.add(data.conn.id)

    @guarded_connection
    def client_disconnected(self, client: connection.Client) -> None:
        self._verified.discard(client.id)
        self._users.pop(client.id, None)

    @guarded
    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if context is None:
            raise internal("the request was not resolved")
        if context.listener is Listener.PLAIN:
            await self._check_user(flow.client_conn)
        peer = Peer(
            listener=context.listener,
            is_loopback=ipaddress.ip_address(flow.client_conn.peername[0].partition("%")[0]).is_loopback,
            is_this_node=context.listener is Listener.TLS and flow.client_conn.id in self._verified,
        )
        context.caller = caller_of(peer, headers_of(flow.request))
        flow.request.headers.pop(LENDING_HEADER, None)

    async def _check_user(self, client: connection.Client) -> None:
        """StatusError 403 where `hub_plain_users` names the plain port's users, and the caller is none of them."""
        users = self._options.settings.plain_users
        if not users:
            return
        if client.id not in self._users:
            table = await asyncio.to_thread(Path(table_of(client.peername[0])).read_text)
            self._users[client.id] = user_of(table, client.peername[:2], client.sockname[:2])
        if self._users[client.id] not in users:
            raise forbidden("this port is not for your user of this node")

    def _server_side(self) -> SSL.Connection:
        if self._certificate is None or self._credentials is None:
            raise RuntimeError("the hub has not started")
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        self._certificate.use_in(context)
        store = context.get_cert_store()
        if store is None:
            raise RuntimeError("OpenSSL gave no certificate store")
        for authority in self._credentials.authorities:
            store.add_cert(crypto.X509.from_cryptography(authority))
        # A certificate that does not verify is not an error of the handshake: its owner is anonymous.
        context.set_verify(SSL.VERIFY_PEER, _note_verification)
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.set_alpn_select_callback(_select_alpn)
        ssl_conn = SSL.Connection(context)
        ssl_conn.set_app_data({"refused": False})
        ssl_conn.set_accept_state()
        return ssl_conn

    def _is_this_node(self, ssl_conn: SSL.Connection) -> bool:
        certificate = ssl_conn.get_peer_certificate()
        if certificate is None or ssl_conn.get_app_data()["refused"]:
            return False
        subject = certificate.to_cryptography().subject
        names = [each.value for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        groups = [each.value for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
        # As the cloud's node authorizer: by name and by group.
        return names == [f"system:node:{self._options.settings.node}"] and "system:nodes" in groups


def _note_verification(ssl_conn: SSL.Connection, _cert: object, _errno: int, _depth: int, ok: int) -> bool:
    if not ok:
        ssl_conn.get_app_data()["refused"] = True
    return True


def _select_alpn(_conn: SSL.Connection, offers: list[bytes]) -> bytes | SSL._NoOverlappingProtocols:
    for protocol in ALPN:
        if protocol in offers:
            return protocol
    return SSL.NO_OVERLAPPING_PROTOCOLS
