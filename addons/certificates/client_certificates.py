"""The server's side of TLS on the hub's listeners: asks for a client certificate, and reads the node that it is for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL import SSL, crypto

from addons.certificates.serving_certificate import Certificate
from kube.peers import NODE_PREFIX, NODES_GROUP, is_node_name

ALPN = (b"h2", b"http/1.1")
CONTEXTS = 8
"""Contexts that are remembered: of the TLS port and the peer port, each before and after a certificate is renewed."""

_contexts: dict[tuple[Hashable, frozenset[x509.Certificate]], SSL.Context] = {}


def server_side(certificate: Certificate, authorities: Iterable[x509.Certificate]) -> SSL.Connection:
    """Return a connection that presents `certificate`, and requests a client certificate signed by the authorities."""
    ssl_conn = SSL.Connection(_context_of(certificate, frozenset(authorities)))
    ssl_conn.set_app_data({"refused": False})
    ssl_conn.set_accept_state()
    return ssl_conn


def _context_of(certificate: Certificate, authorities: frozenset[x509.Certificate]) -> SSL.Context:
    """The context of all connections that show the same: one of its own costs each of them 30 KB, and 1 ms."""
    key = certificate.mark, authorities
    context = _contexts.pop(key, None) or _make_context(certificate, authorities)
    _contexts[key] = context  # behind all others
    while len(_contexts) > CONTEXTS:
        del _contexts[next(iter(_contexts))]
    return context


def _make_context(certificate: Certificate, authorities: frozenset[x509.Certificate]) -> SSL.Context:
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    certificate.use_in(context)
    store = context.get_cert_store()
    assert store is not None
    for authority in authorities:
        store.add_cert(crypto.X509.from_cryptography(authority))
    # A certificate that does not verify is not an error of the handshake: its owner is anonymous.
    context.set_verify(SSL.VERIFY_PEER, _note_verification)
    # Each connection makes a full handshake: a resumed session would vouch for a certificate of long ago.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET)
    context.set_alpn_select_callback(_select_alpn)
    # A watch is silent most of the time: without this OpenSSL keeps 34 KB of buffers for each connection.
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    return context


def is_verified(ssl_conn: SSL.Connection) -> bool:
    """Whether the client showed a certificate that the authorities of `server_side` have signed."""
    return ssl_conn.get_peer_certificate() is not None and not ssl_conn.get_app_data()["refused"]


def node_of(certificate: x509.Certificate) -> str:
    """The node that this certificate names, by the Node authorizer's rule for name and group; "" for no node.

    The signer of clients' certificates does not check the text behind `system:node:`.
    """
    names = [
        str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    ]
    groups = [
        attribute.value for attribute in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    ]
    if len(names) != 1 or not names[0].startswith(NODE_PREFIX) or NODES_GROUP not in groups:
        return ""
    node = names[0].removeprefix(NODE_PREFIX)
    return node if is_node_name(node) else ""


def _note_verification(ssl_conn: SSL.Connection, _cert: object, _errno: int, _depth: int, ok: int) -> bool:
    if not ok:
        ssl_conn.get_app_data()["refused"] = True
    return True


def _select_alpn(_conn: SSL.Connection, offers: list[bytes]) -> Any:
    """Bytes, or NO_OVERLAPPING_PROTOCOLS, whose type pyOpenSSL does not name."""
    for protocol in ALPN:
        if protocol in offers:
            return protocol
    return SSL.NO_OVERLAPPING_PROTOCOLS
