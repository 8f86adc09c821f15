"""TLS towards the cloud: verifies servers by the cluster's CA, and shows the hub's certificate where it is lent.

kubelet renews the node's certificate while the hub runs. The hub reads the files again when they change. It uses the
former ones while the files do not match, because a certificate and its key cannot be replaced in one step.
"""

from __future__ import annotations

import datetime
import ipaddress
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from OpenSSL import SSL, crypto

from addons.link.uplinks.uplink import is_address
from kube.http.kubeconfig import Credentials

logger = logging.getLogger(__name__)


class _Made(NamedTuple):
    """A context, and the contents of the files that it was made of."""

    pieces: tuple[bytes, ...]
    context: SSL.Context
    leaf: x509.Certificate | None
    """The hub's certificate, where the context shows one."""
    partition: str
    """Names the certificate; "" for none."""


@dataclass(slots=True)
class Expected:
    """The server that a connection leads to."""

    name: str
    """For people."""
    is_server: Callable[[x509.Certificate], bool]
    """Whether a certificate is the server's."""
    fault: str = ""
    """The fault of the certificate that the hub has shown, as text."""


class UpstreamTls:
    """Makes OpenSSL connections. It caches a context until one of its files changes."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._made: dict[bool, _Made] = {}
        """By whether the context shows the hub's certificate."""
        self._refused: tuple[bytes, ...] = ()
        """The last contents that no context could be made of, while a former context serves."""

    @property
    def server_name(self) -> str:
        return self._credentials.server_name

    @property
    def partition(self) -> str:
        """Names the certificate in force, "" without one.

        kube-apiserver checks a connection's certificate with each request, and answers 401 after it has expired. So no
        request uses a connection that was opened with a former certificate, while streams there continue.
        """
        made = self._lent()
        return made.partition if made is not None else ""

    def expiry(self) -> datetime.datetime | None:
        """When the certificate in force expires; None without a usable one."""
        made = self._lent()
        return made.leaf.not_valid_after_utc if made is not None and made.leaf is not None else None

    def check(self) -> None:
        """ValueError where the certificates cannot be used."""
        try:
            self._current(lend_certificate=True)
        except (OSError, ValueError, SSL.Error) as error:
            raise ValueError(f"the certificates cannot be used: {error}") from error

    def connection(self, server_name: str, *, lend_certificate: bool, alpn: list[bytes]) -> SSL.Connection:
        """A connection that is about to send its ClientHello. The handshake fails unless the server is `server_name`.

        ValueError or OpenSSL.SSL.Error when the credentials cannot be used.
        """
        context = self._current(lend_certificate).context
        return client_connection(context, server_name, alpn)

    def _lent(self) -> _Made | None:
        try:
            return self._current(lend_certificate=True)
        except (OSError, ValueError, SSL.Error):
            return None  # the handshake's error has the reason

    def _current(self, lend_certificate: bool) -> _Made:
        """A context of the files as they are now, or the former one while they do not fit each other."""
        own = self._credentials
        pieces: tuple[bytes, ...] = (own.authority.read(),)
        if lend_certificate:
            pieces += (own.certificate.read(), own.key.read())
        former = self._made.get(lend_certificate)
        if former is not None and pieces in (former.pieces, self._refused):
            return former
        try:
            made = self._new(pieces)
        except (ValueError, SSL.Error) as error:
            if former is None:
                raise
            self._refused = pieces
            logger.warning(
                "the new credentials of the kubeconfig cannot be used, the previous ones stay in use: %s",
                error,
            )
            return former
        self._made[lend_certificate] = made
        if former is not None and made.leaf is not None and made.leaf != former.leaf:
            logger.info("this node has a new certificate, valid until %s", made.leaf.not_valid_after_utc)
        return made

    def _new(self, pieces: tuple[bytes, ...]) -> _Made:
        authorities = self._credentials.authorities
        context = client_context(authorities)
        if self._credentials.insecure:
            context.set_verify(SSL.VERIFY_NONE)
        if not authorities:
            context.set_default_verify_paths()
        leaf = show_certificate(context, pieces[1], pieces[2]) if any(pieces[1:]) else None
        partition = leaf.fingerprint(hashes.SHA256()).hex()[:16] if leaf is not None else ""
        return _Made(pieces, context, leaf, partition)


def client_context(authorities: Iterable[x509.Certificate]) -> SSL.Context:
    """A context for connections to servers whose certificates these CAs have signed."""
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.set_verify(SSL.VERIFY_PEER, _verify)
    # A relayed watch is silent most of the time: without this OpenSSL keeps 34 KB of buffers for each connection.
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    store = context.get_cert_store()
    assert store is not None
    for authority in authorities:
        store.add_cert(crypto.X509.from_cryptography(authority))
    return context


def plain_connection(server_name: str) -> SSL.Connection:
    """TLS with a server that the system's authorities know, without a certificate of this node's."""
    context = client_context(())
    context.set_default_verify_paths()
    return client_connection(context, server_name, [b"http/1.1"])


def client_connection(context: SSL.Context, server_name: str, alpn: list[bytes]) -> SSL.Connection:
    """TLS that is about to begin, with a server of this name. ValueError for no name."""
    ssl_conn = connection_to(Expected(server_name, lambda shown: is_named(shown, server_name)), context, alpn)
    if not is_address(server_name):
        ssl_conn.set_tlsext_host_name(_ascii(server_name).encode())
    return ssl_conn


def connection_to(expected: Expected, context: SSL.Context, alpn: list[bytes]) -> SSL.Connection:
    """TLS that is about to begin, with the server that is expected."""
    ssl_conn = SSL.Connection(context)
    ssl_conn.set_app_data(expected)
    ssl_conn.set_alpn_protos(alpn)
    ssl_conn.set_connect_state()
    return ssl_conn


def show_certificate(context: SSL.Context, certificates: bytes, key: bytes) -> x509.Certificate:
    """Load a client's certificate into a context, and return it; ValueError or SSL.Error where it is no pair."""
    leaf, *chain = x509.load_pem_x509_certificates(certificates)
    context.use_certificate(leaf)
    for certificate in chain:
        context.add_extra_chain_cert(certificate)
    private = serialization.load_pem_private_key(key, None)
    context.use_privatekey(private)  # type: ignore[arg-type]  # OpenSSL refuses kinds that it does not know
    context.check_privatekey()
    return leaf


def refusal_of(tls: SSL.Connection) -> str:
    """The error in the server's certificate; "" where nothing was found."""
    fault = tls.get_app_data().fault
    return f"Certificate verify failed: {fault}" if fault else ""


def _verify(tls: SSL.Connection, shown: crypto.X509, code: int, depth: int, is_valid: int) -> bool:
    """Take OpenSSL's result for each certificate of a chain, and note whether its last one is the server's."""
    expected: Expected = tls.get_app_data()
    if not is_valid:
        expected.fault = _FAULTS.get(code, f"error {code}")
    elif depth == 0:
        try:
            is_its = expected.is_server(shown.to_cryptography())
        except Exception as error:  # a server may show whatever it likes
            expected.fault = f"the certificate cannot be read: {error}"
        else:
            expected.fault = "" if is_its else f"the certificate is not that of {expected.name}"
    return not expected.fault


def is_named(certificate: x509.Certificate, name: str) -> bool:
    """Whether a certificate is valid for a host of this name or address.

    As for kube-apiserver's other clients, the subject's common name does not count, and a wildcard matches one full
    label (RFC 9525, 6.3). ValueError if the certificate has no name.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    if is_address(name):
        return ipaddress.ip_address(name) in names.get_values_for_type(x509.IPAddress)
    wanted = _ascii(name)
    wildcard = "*." + wanted.partition(".")[2]
    patterns = [pattern.lower().removesuffix(".") for pattern in names.get_values_for_type(x509.DNSName)]
    return wanted in patterns or (wildcard.count(".") > 1 and wildcard in patterns)


def _ascii(name: str) -> str:
    """A host's name as certificates have it. ValueError for no name."""
    if not name or "*" in name or "\0" in name:
        raise ValueError(f"{name!r} is no server's name")
    return name.encode("idna").decode().lower().removesuffix(".")


_FAULTS = {
    code: " ".join({"cert": "certificate"}.get(part, part) for part in name.lower().split("_")[1:])
    for name, code in vars(SSL.X509VerificationCodes).items()
    if name.startswith("ERR_")
}
"""OpenSSL's fault of a certificate, as text."""
