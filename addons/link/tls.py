"""TLS to the cloud: verifies servers by the cluster's CA, and presents the hub's certificate on connections with its
identity.

kubelet renews the node's certificate while the hub runs, so the hub reads the files again when they change. It uses the
previous contents while certificate and key do not match, because they cannot be replaced atomically.
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


class _CachedContext(NamedTuple):
    """A cached context, and the file contents from which it was made."""

    contents: tuple[bytes, ...]
    context: SSL.Context
    leaf: x509.Certificate | None
    """The hub's certificate; None if the context presents none."""
    partition: str
    """Fingerprint of the certificate; "" without one."""


@dataclass(slots=True)
class Expected:
    """The server that a connection must reach."""

    name: str
    """The server's name, for error messages."""
    is_server: Callable[[x509.Certificate], bool]
    """Returns whether a certificate belongs to the server."""
    fault: str = ""
    """The error found in the presented certificate; "" if none."""


class UpstreamTls:
    """Makes OpenSSL connections. Contexts are cached until one of their files changes."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._contexts: dict[bool, _CachedContext] = {}
        """The cached contexts, by whether they present the hub's certificate."""
        self._refused: tuple[bytes, ...] = ()
        """The last contents that could not be used, so that they are reported once."""

    @property
    def server_name(self) -> str:
        return self._credentials.cluster.server_name

    @property
    def partition(self) -> str:
        """Fingerprint of the certificate in use; "" without one.

        kube-apiserver checks a connection's certificate at each request, and answers 401 after it has expired. So new
        requests never use a connection that was opened with a previous certificate, while its open streams continue.
        """
        made = self._with_certificate()
        return made.partition if made is not None else ""

    def expiry(self) -> datetime.datetime | None:
        """Return when the certificate in use expires; None without a usable one."""
        made = self._with_certificate()
        return made.leaf.not_valid_after_utc if made is not None and made.leaf is not None else None

    def check(self) -> None:
        """Raise ValueError if the certificates cannot be used."""
        try:
            self._context(present_certificate=True)
        except (OSError, ValueError, SSL.Error) as error:
            raise ValueError(f"the certificates cannot be used: {error}") from error

    def connection(self, server_name: str, *, present_certificate: bool, alpn: list[bytes]) -> SSL.Connection:
        """Return a connection before its ClientHello. The handshake fails unless the server is `server_name`.

        ValueError or OpenSSL.SSL.Error if the credentials cannot be used.
        """
        context = self._context(present_certificate).context
        return client_connection(context, server_name, alpn)

    def _with_certificate(self) -> _CachedContext | None:
        try:
            return self._context(present_certificate=True)
        except (OSError, ValueError, SSL.Error):
            return None  # the handshake will report the reason

    def _context(self, present_certificate: bool) -> _CachedContext:
        """Return a context of the files' current contents, or the previous one while these do not match each other."""
        own = self._credentials
        contents: tuple[bytes, ...] = (own.cluster.authority.read(),)
        if present_certificate:
            contents += (own.user.certificate.read(), own.user.key.read())
        previous = self._contexts.get(present_certificate)
        if previous is not None and contents in (previous.contents, self._refused):
            return previous
        try:
            made = self._new_context(contents)
        except (ValueError, SSL.Error) as error:
            if previous is None:
                raise
            self._refused = contents
            logger.warning(
                "the new credentials of the kubeconfig cannot be used, the previous ones stay in use: %s",
                error,
            )
            return previous
        self._contexts[present_certificate] = made
        if previous is not None and made.leaf is not None and made.leaf != previous.leaf:
            logger.info("this node has a new certificate, valid until %s", made.leaf.not_valid_after_utc)
        return made

    def _new_context(self, contents: tuple[bytes, ...]) -> _CachedContext:
        authorities = self._credentials.cluster.authorities
        context = client_context(authorities)
        if self._credentials.cluster.insecure:
            context.set_verify(SSL.VERIFY_NONE)
        if not authorities:
            context.set_default_verify_paths()
        leaf = load_certificate(context, contents[1], contents[2]) if any(contents[1:]) else None
        partition = leaf.fingerprint(hashes.SHA256()).hex()[:16] if leaf is not None else ""
        return _CachedContext(contents, context, leaf, partition)


def client_context(authorities: Iterable[x509.Certificate]) -> SSL.Context:
    """Return a context for connections to servers with certificates from these CAs."""
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


def connection_by_system_cas(server_name: str) -> SSL.Connection:
    """Return TLS to a server that is verified by the system's CAs, without a client certificate."""
    context = client_context(())
    context.set_default_verify_paths()
    return client_connection(context, server_name, [b"http/1.1"])


def client_connection(context: SSL.Context, server_name: str, alpn: list[bytes]) -> SSL.Connection:
    """Return TLS, before its handshake, to a server of this name. ValueError if the name is invalid."""
    ssl_conn = connection_to(Expected(server_name, lambda shown: is_named(shown, server_name)), context, alpn)
    if not is_address(server_name):
        ssl_conn.set_tlsext_host_name(_ascii(server_name).encode())
    return ssl_conn


def connection_to(expected: Expected, context: SSL.Context, alpn: list[bytes]) -> SSL.Connection:
    """Return TLS, before its handshake, to the expected server."""
    ssl_conn = SSL.Connection(context)
    ssl_conn.set_app_data(expected)
    ssl_conn.set_alpn_protos(alpn)
    ssl_conn.set_connect_state()
    return ssl_conn


def load_certificate(context: SSL.Context, certificates: bytes, key: bytes) -> x509.Certificate:
    """Load a client certificate and its key into a context, and return the certificate. ValueError or SSL.Error if they
    do not match.
    """
    leaf, *chain = x509.load_pem_x509_certificates(certificates)
    context.use_certificate(leaf)
    for certificate in chain:
        context.add_extra_chain_cert(certificate)
    private = serialization.load_pem_private_key(key, None)
    context.use_privatekey(private)  # type: ignore[arg-type]  # OpenSSL refuses kinds that it does not know
    context.check_privatekey()
    return leaf


def refusal_of(tls: SSL.Connection) -> str:
    """Return the error found in the server's certificate; "" if none."""
    fault = tls.get_app_data().fault
    return f"Certificate verify failed: {fault}" if fault else ""


def _verify(tls: SSL.Connection, shown: crypto.X509, code: int, depth: int, is_valid: int) -> bool:
    """Verify one certificate of a chain by OpenSSL's result, and the last one by the expected name. Called by
    OpenSSL.
    """
    expected: Expected = tls.get_app_data()
    if not is_valid:
        expected.fault = _FAULTS.get(code, f"error {code}")
    elif depth == 0:
        try:
            is_its = expected.is_server(shown.to_cryptography())
        except Exception as error:  # a server may present anything
            expected.fault = f"the certificate cannot be read: {error}"
        else:
            expected.fault = "" if is_its else f"the certificate is not that of {expected.name}"
    return not expected.fault


def is_named(certificate: x509.Certificate, name: str) -> bool:
    """Whether a certificate is valid for this host name or address.

    Like other clients of kube-apiserver, it ignores the subject's common name, and a wildcard matches one complete
    label (RFC 9525, 6.3). ValueError if `name` is invalid.
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
    """Return a host name in the form of certificates. ValueError if it is invalid."""
    if not name or "*" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a server name")
    return name.encode("idna").decode().lower().removesuffix(".")


_FAULTS = {
    code: " ".join({"cert": "certificate"}.get(part, part) for part in name.lower().split("_")[1:])
    for name, code in vars(SSL.X509VerificationCodes).items()
    if name.startswith("ERR_")
}
"""Texts of OpenSSL's verification errors, by their code."""
