"""Says who calls: by listener, by headers, and on the TLS port by client certificate."""

from __future__ import annotations

import ipaddress

from cryptography.x509.oid import NameOID
from mitmproxy import connection, http, tls
from OpenSSL import SSL, crypto

from addons.certificates.serving_certificate import ServingCertificate
from addons.options import Options
from addons.proxy.fail_closed import guarded, guarded_connection
from addons.requests.caller import Listener, Peer, caller_of
from addons.requests.headers import LENDING_HEADER
from addons.requests.request_context import context_of
from kube.errors import internal
from kube.http.kubeconfig import Credentials

ALPN = (b"h2", b"http/1.1")


class Identity:
    """Terminates TLS for pods, and adds the caller to each request context."""

    name = "edgehub-identity"

    def __init__(self, options: Options) -> None:
        self._options = options
        self._credentials: Credentials | None = None
        self._certificate: ServingCertificate | None = None
        self._verified: set[str] = set()

    def serve_with(self, credentials: Credentials, certificate: ServingCertificate) -> None:
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

    @guarded
    def requestheaders(self, flow: http.HTTPFlow) -> None:
        context = context_of(flow)
        if context is None:
            raise internal("the request was not resolved")
        peer = Peer(
            listener=context.listener,
            is_loopback=ipaddress.ip_address(flow.client_conn.peername[0].partition("%")[0]).is_loopback,
            is_this_node=context.listener is Listener.TLS and flow.client_conn.id in self._verified,
        )
        context.caller = caller_of(peer, flow.request.headers.items(multi=True))
        flow.request.headers.pop(LENDING_HEADER, None)

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
        names = certificate.to_cryptography().subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return [name.value for name in names] == [f"system:node:{self._options.settings.node}"]


def _note_verification(ssl_conn: SSL.Connection, _cert: object, _errno: int, _depth: int, ok: int) -> bool:
    if not ok:
        ssl_conn.get_app_data()["refused"] = True
    return True


def _select_alpn(_conn: SSL.Connection, offers: list[bytes]) -> bytes | SSL._NoOverlappingProtocols:
    for protocol in ALPN:
        if protocol in offers:
            return protocol
    return SSL.NO_OVERLAPPING_PROTOCOLS
