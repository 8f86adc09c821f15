"""Which certificate the TLS port shows: the cluster's where it names the address that the client called, or the local.

mitmproxy has read the ClientHello when it asks for the server's side of TLS, so the choice can follow what was called.
The cluster signs no name of the Kubernetes Service for a node, which could then stand in for the API server anywhere:
clients by such a name get the certificate of the local CA.
"""

from __future__ import annotations

import datetime

from addons.certificates.asked_certificate import AskedCertificate
from addons.certificates.own_certificate import Certificate
from addons.certificates.serving_certificate import Pair
from kube.certificate_authority import names_of

FILE = "pki/cluster.pem"
"""The cluster's certificate and its key, in the state folder."""


class TlsPortCertificate:
    """Chooses for each handshake."""

    def __init__(self, local: Certificate, signed: AskedCertificate | None = None) -> None:
        """`local` is the operator's certificate or the local CA's; `asked` is the cluster's, where the hub asks."""
        self._local = local
        self._asked = signed
        self._known: tuple[Pair, frozenset[str]] | None = None
        """The cluster's certificate of the last handshake, and the names in it."""

    def shown_to(self, called: str) -> Certificate:
        """The certificate for a client that called this name or address."""
        pair = self._asked.current if self._asked is not None else None
        if pair is None:
            return self._local
        if self._known is None or self._known[0] is not pair:
            self._known = pair, frozenset(names_of(pair.certificate))
        return pair if called in self._known[1] else self._local

    def expiry(self) -> datetime.datetime | None:
        """When the certificate ends that most pods see: the cluster's, or else the local."""
        pair = self._asked.current if self._asked is not None else None
        return pair.expiry() if pair is not None else self._local.expiry()
