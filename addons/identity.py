"""Identifies the caller: by listener, by headers, and on the TLS port by client certificate."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from mitmproxy import connection, http, tls
from OpenSSL import SSL

from addons.certificates.client_certificates import is_verified, node_of, server_side
from addons.certificates.tls_port_certificate import TlsPortCertificate
from addons.options import Options
from addons.pool.peer_admission import Admission
from addons.proxy.listener_mode import listener_of
from addons.requests.caller import (
    CALLER_FIELDS,
    Caller,
    CredentialSource,
    Listener,
    Peer,
    caller_of,
)
from addons.requests.hidden_credentials import headers_of
from addons.requests.peer_user import peer_user
from addons.requests.request_context import RequestContext, context_of
from kube.errors import forbidden, internal
from kube.http.kubeconfig import Credentials

FRONT_PROXY = b"x-remote-"
"""The prefix of a front proxy's headers (kube-apiserver's `--requestheader-username-headers` and similar).

A front proxy names the user behind it. A kube-apiserver that trusts the same CA for front proxies and for clients would
take the node's certificate for such a proxy's.
"""
OWN_HEADERS = b"x-edgehub-"
"""The prefix of all names in `addons.requests.headers`."""


class Identity:
    """Terminates TLS for pods, and adds the caller to each request context."""

    name = "edgehub-identity"

    def __init__(self, options: Options) -> None:
        self._options = options
        self._credentials: Credentials | None = None
        self._certificate: TlsPortCertificate | None = None
        self._shown: dict[str, bool] = {}
        """For each connection of the TLS port with a client certificate, whether that is this node's."""
        self._admission: Admission | None = None
        self._users: WeakKeyDictionary[connection.Client, int | None] = WeakKeyDictionary()
        """The user id at the other end of each connection of the plain port. It may be determined after the connection
        is open."""

    def serve_with(self, credentials: Credentials, certificate: TlsPortCertificate) -> None:
        """Set the cluster's CA, by which client certificates are verified, and the TLS port's certificate."""
        self._credentials, self._certificate = credentials, certificate

    def serve_peers(self, admission: Admission) -> None:
        """Set the component that decides about connections of the peer port."""
        self._admission = admission

    def tls_start_client(self, data: tls.TlsData) -> None:
        data.ssl_conn = self._server_side(data.context.client)

    def tls_established_client(self, data: tls.TlsData) -> None:
        if data.ssl_conn is not None and self._is_peer(data.context.client) and self._admission is not None:
            self._admission.established(data.conn.id, data.ssl_conn)
        elif data.ssl_conn is not None and data.ssl_conn.get_peer_certificate() is not None:
            self._shown[data.conn.id] = self._is_this_node(data.ssl_conn)

    def client_disconnected(self, client: connection.Client) -> None:
        self._shown.pop(client.id, None)
        if self._admission is not None:
            self._admission.disconnected(client.id)

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if context is None:
            raise internal("the request was not resolved")
        if context.listener is Listener.PEER:
            self._admit(flow, context)
            return
        if context.listener is Listener.PLAIN:
            await self._check_user(flow.client_conn)
        is_this_node = self._shown.get(flow.client_conn.id) if context.listener is Listener.TLS else None
        peer = Peer(
            listener=context.listener,
            is_loopback=_is_loopback(flow.client_conn.peername[0]),
            is_this_node=is_this_node is True,
            is_another=is_this_node is False,
        )
        context.caller = caller_of(peer, headers_of(flow.request, CALLER_FIELDS))
        # The hub's own headers are never taken from the caller.
        _drop(flow.request, (FRONT_PROXY, OWN_HEADERS))

    def _admit(self, flow: http.HTTPFlow, context: RequestContext) -> None:
        """Record the node whose hub sends the request. No part of the request ever goes to the cloud."""
        if self._admission is None:
            raise forbidden("this hub has no peer port")
        context.peer = self._admission.admit(
            flow.client_conn.id, headers_of(flow.request), flow.client_conn.peername[0].partition("%")[0]
        )
        context.caller = Caller(CredentialSource.NONE)

    async def _check_user(self, client: connection.Client) -> None:
        """Raise StatusError 403 if `hub_plain_users` names the plain port's users, and the caller is none of them."""
        users = self._options.settings.plain_users
        if not users:
            return
        if client not in self._users:
            self._users[client] = await peer_user(client.peername[:2], client.sockname[:2])
        if self._users[client] not in users:
            raise forbidden("this user of the node may not use this port")

    def _server_side(self, client: connection.Client) -> SSL.Connection:
        if self._admission is not None and self._is_peer(client):
            return self._admission.server_side()
        if self._certificate is None or self._credentials is None:
            raise RuntimeError("the hub has not started")
        called = client.sni or client.sockname[0].partition("%")[0]
        return server_side(self._certificate.shown_to(called), self._credentials.cluster.authorities)

    def _is_peer(self, client: connection.Client) -> bool:
        return self._admission is not None and listener_of(client) is Listener.PEER

    def _is_this_node(self, ssl_conn: SSL.Connection) -> bool:
        certificate = ssl_conn.get_peer_certificate()
        if certificate is None or not is_verified(ssl_conn):
            return False
        return node_of(certificate.to_cryptography()) == self._options.settings.node


def _is_loopback(address: str) -> bool:
    """Whether an address, in the kernel's notation, is a loopback address."""
    return address == "::1" or address.startswith(("127.", "::ffff:127."))


def _drop(request: http.Request, prefixes: tuple[bytes, ...]) -> None:
    """Remove the headers whose names begin with one of these prefixes."""
    fields = request.headers.fields
    others = [field for field in fields if not field[0].lower().startswith(prefixes)]
    if len(others) < len(fields):
        request.headers.fields = tuple(others)
