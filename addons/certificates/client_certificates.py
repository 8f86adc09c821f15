"""The server side of TLS on the hub's listeners: requests a client certificate, and returns the node that it names."""

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
"""Maximum cached contexts: those of the TLS port and the peer port, each before and after a renewal."""

_contexts: dict[tuple[Hashable, frozenset[x509.Certificate]], SSL.Context] = {}


def server_side(certificate: Certificate, authorities: Iterable[x509.Certificate]) -> SSL.Connection:
    """Return a connection that presents `certificate`, and requests a client certificate signed by the authorities."""
    ssl_conn = SSL.Connection(_context_of(certificate, frozenset(authorities)))
    ssl_conn.set_app_data({"refused": False})
    ssl_conn.set_accept_state()
    return ssl_conn


def _context_of(certificate: Certificate, authorities: frozenset[x509.Certificate]) -> SSL.Context:
    """Return the context shared by all connections with this certificate: one of its own would cost a connection 30 KB
    and 1 ms.
    """
    key = certificate.mark, authorities
    context = _contexts.pop(key, None) or _make_context(certificate, authorities)
    _contexts[key] = context  # most recently used last
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
    # A certificate that does not verify does not fail the handshake: its owner is anonymous.
    context.set_verify(SSL.VERIFY_PEER, _note_verification)
    # No resumption: a resumed session would vouch for a certificate verified long ago.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET)
    context.set_alpn_select_callback(_select_alpn)
    # A watch is mostly idle: without this mode OpenSSL allocates 34 KB of buffers for each connection.
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    return context


def is_verified(ssl_conn: SSL.Connection) -> bool:
    """Whether the client presented a certificate signed by one of the authorities given to `server_side`."""
    return ssl_conn.get_peer_certificate() is not None and not ssl_conn.get_app_data()["refused"]


def node_of(certificate: x509.Certificate) -> str:
    """Return the node that a certificate names; "" for no node.

    The name is validated, because the signer of client certificates does not check the text after `system:node:`.
    """
    node = text_of_node(certificate)
    return node if is_node_name(node) else ""


def text_of_node(certificate: x509.Certificate) -> str:
    """Return what a certificate has for a node's name, valid or not, by the Node authorizer's rule for user and group;
    "" for another user's.
    """
    names = [
        str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    ]
    groups = [
        attribute.value for attribute in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    ]
    if len(names) != 1 or not names[0].startswith(NODE_PREFIX) or NODES_GROUP not in groups:
        return ""
    return names[0].removeprefix(NODE_PREFIX)


def _note_verification(ssl_conn: SSL.Connection, _cert: object, _errno: int, _depth: int, ok: int) -> bool:
    if not ok:
        ssl_conn.get_app_data()["refused"] = True
    return True


def _select_alpn(_conn: SSL.Connection, offers: list[bytes]) -> Any:
    """Return the selected protocol, or NO_OVERLAPPING_PROTOCOLS, whose type pyOpenSSL does not export."""
    for protocol in ALPN:
        if protocol in offers:
            return protocol
    return SSL.NO_OVERLAPPING_PROTOCOLS
