"""Reports TLS handshakes that clients abort, mostly because they do not trust the certificate.

Each is counted. The log and `edgehub observe` get one line a minute for each address and each label of the metric, so a
client that retries all the time floods neither, and does not hide other clients.
"""

from __future__ import annotations

import logging
import time

from cryptography import x509
from mitmproxy import tls

from addons.certificates.tls_port_certificate import SERVICE_NAMES
from addons.telemetry import metrics
from addons.telemetry.labels import OTHER
from addons.telemetry.log import Pace
from addons.telemetry.observation import HANDSHAKE, Observation, Observations
from kube.log_lines import printable

ALERT = "alert "
"""OpenSSL's text before the name of an alert (RFC 8446, 6.2)."""
MAX_NAME = 253
"""Maximum characters of a server name in a line: the maximum of a DNS name."""

logger = logging.getLogger(__name__)


class FailedHandshakes:
    """Counts failed handshakes, and adds an observation for each that is not rate-limited."""

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._pace = Pace()

    def add(self, data: tls.TlsData) -> None:
        """Record a handshake that has just failed; the connection's `error` has the reason."""
        client = data.context.client
        address, called = client.peername[0].partition("%")[0], (client.sni or "")[:MAX_NAME]
        said = (client.error or "").rpartition(ALERT)[2]
        labels = metrics.count_failed_handshake(said, _called_label(called))
        if not self._pace.allows((address, *labels)):
            return
        shown = _shown(data)
        reason = f"{address} says {said!r} of {shown}" if shown else f"{address}: {client.error}"
        called = called or "{}:{}".format(*client.sockname[:2])
        self._observations.add(
            Observation(
                *(time.time(), "", HANDSHAKE, "tls", "", "", called, "failed", 0, 0, None, "hub", "", reason),
                *(0, ()),
            )
        )
        logger.warning("a TLS handshake for %s failed: %s", printable(called), printable(reason))


def _called_label(called: str) -> str:
    if not called:
        return "address"
    return "kubernetes" if called in SERVICE_NAMES else OTHER


def _shown(data: tls.TlsData) -> str:
    """Describe the certificate that the client got, by names and issuer; "" if there was none."""
    certificate = data.ssl_conn.get_certificate(as_cryptography=True) if data.ssl_conn is not None else None
    if certificate is None:
        return ""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return f"the certificate of {certificate.subject.rfc4514_string()}"
    text = ", ".join(str(name.value) for name in names)
    return f"the certificate for {text}, signed by {certificate.issuer.rfc4514_string()}"
