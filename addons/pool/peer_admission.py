"""Authorizes callers of the peer port: only hubs of the pool's nodes, by their nodes' client certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cryptography import x509
from OpenSSL import SSL

from addons.certificates.client_certificates import is_verified, node_of, server_side
from addons.certificates.serving_certificate import Certificate
from addons.pool.deputies import MAX_LENDERS, Deputies
from addons.requests.headers import LENDS_HEADER, PEER_HEADER
from addons.telemetry import metrics
from kube.errors import StatusError, forbidden, unauthorized, unavailable


def refused(reason: str, error: StatusError) -> StatusError:
    """Count a refusal of the peer port by its reason, and return it."""
    metrics.PEER_REFUSED.labels(reason).inc()
    return error


class Admission:
    """Authorizes requests at the peer port by the node of each connection's client certificate."""

    def __init__(
        self,
        certificate: Callable[[], Certificate | None],
        authorities: Callable[[], Iterable[x509.Certificate]],
        is_member: Callable[[str], bool | None],
    ) -> None:
        """`authorities` are the CAs of client certificates. `is_member` returns whether a node belongs to the pool,
        None while that is unknown."""
        self.deputies, self.lenders = Deputies(), Deputies(most=MAX_LENDERS)
        """The authorized nodes with an open peer port, and those of them that lend their link to the cloud."""
        self._certificate = certificate
        self._authorities = authorities
        self._is_member = is_member
        self._nodes: dict[str, str] = {}
        """The node that each connection's verified certificate names, by the connection's id."""
        self._refusals: dict[str, str] = {}
        """Why a connection's certificate names no node, by the connection's id."""

    def server_side(self) -> SSL.Connection:
        """Return the TLS state of a new connection; RuntimeError if the hub has no certificate for the peer port."""
        certificate = self._certificate()
        if certificate is None:
            raise RuntimeError("the peer port has no certificate yet")
        return server_side(certificate, self._authorities())

    def established(self, connection: str, ssl_conn: SSL.Connection) -> None:
        """Verify the client certificate of a connection after its TLS handshake."""
        shown = ssl_conn.get_peer_certificate()
        if shown is None:
            self._refusals[connection] = "no certificate"
        elif not is_verified(ssl_conn):
            self._refusals[connection] = "untrusted certificate"
        elif node := node_of(shown.to_cryptography()):
            self._nodes[connection] = node
        else:
            self._refusals[connection] = "no node"

    def disconnected(self, connection: str) -> None:
        self._nodes.pop(connection, None)
        self._refusals.pop(connection, None)

    def admit(self, connection: str, headers: Iterable[tuple[str, str]], address: str) -> str:
        """Return the node that sends a request; StatusError 401 or 403 for any other caller, 503 while the pool is
        unknown.

        `address` is the source address of the connection.
        """
        names = {name.lower(): value for name, value in headers}
        if "authorization" in names or any(name.startswith("impersonate-") for name in names):
            raise refused("token", unauthorized("the peer port takes no token and no other identity"))
        node = self._nodes.get(connection)
        if node is None:
            why = self._refusals.get(connection, "no certificate")
            if why == "no node":
                raise refused(why, forbidden("the client certificate is not a node's"))
            raise refused(why, unauthorized("the peer port needs the client certificate of a node"))
        is_member = self._is_member(node)
        if is_member is None:
            raise refused(
                "unknown pool", unavailable("the nodes of the pool are not known yet", retry_after=1)
            )
        if not is_member:
            raise refused("other pool", forbidden(f"node {node} is not in this pool"))
        if PEER_HEADER in names:
            self.deputies.announce(node, names[PEER_HEADER], address)
            if LENDS_HEADER in names:
                self.lenders.announce(node, names[PEER_HEADER], address)
        return node
