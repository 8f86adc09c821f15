"""TLS towards the cloud: verifies servers by the cluster's CA, and shows the hub's certificate where it is lent."""

from __future__ import annotations

import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL, crypto

from kube.http.kubeconfig import Credentials


class UpstreamTls:
    """Makes OpenSSL connections. A context is kept until the files that it was made of change."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._contexts: dict[bool, tuple[tuple[bytes, ...], SSL.Context]] = {}

    @property
    def server_name(self) -> str:
        return self._credentials.server_name

    def connection(self, server_name: str, *, lend_certificate: bool, alpn: list[bytes]) -> SSL.Connection:
        """A connection that is about to send its ClientHello. The handshake fails unless the server is `server_name`.

        ValueError or OpenSSL.SSL.Error when the credentials cannot be used.
        """
        ssl_conn = SSL.Connection(self._context(lend_certificate))
        if not self._credentials.insecure:
            _expect_name(ssl_conn, server_name)
        if not _is_address(server_name):
            ssl_conn.set_tlsext_host_name(server_name.encode("idna"))
        ssl_conn.set_alpn_protos(alpn)
        ssl_conn.set_connect_state()
        return ssl_conn

    def _context(self, lend_certificate: bool) -> SSL.Context:
        own = self._credentials
        pieces: tuple[bytes, ...] = (own.authority.read(),)
        if lend_certificate:
            pieces += (own.certificate.read(), own.key.read())
        known = self._contexts.get(lend_certificate)
        if known is not None and known[0] == pieces:
            return known[1]
        context = self._new_context(pieces)
        self._contexts[lend_certificate] = (pieces, context)
        return context

    def _new_context(self, pieces: tuple[bytes, ...]) -> SSL.Context:
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        context.set_verify(SSL.VERIFY_NONE if self._credentials.insecure else SSL.VERIFY_PEER)
        authorities = self._credentials.authorities
        if authorities:
            store = context.get_cert_store()
            if store is None:
                raise ValueError("OpenSSL gave no certificate store")
            for authority in authorities:
                store.add_cert(crypto.X509.from_cryptography(authority))
        else:
            context.set_default_verify_paths()
        if any(pieces[1:]):
            leaf, *chain = x509.load_pem_x509_certificates(pieces[1])
            context.use_certificate(leaf)
            for certificate in chain:
                context.add_extra_chain_cert(certificate)
            key = serialization.load_pem_private_key(pieces[2], None)
            context.use_privatekey(key)  # type: ignore[arg-type]  # OpenSSL refuses kinds that it does not know
            context.check_privatekey()
        return context


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _expect_name(ssl_conn: SSL.Connection, name: str) -> None:
    """Have OpenSSL check the server's name. pyOpenSSL has no call for it; mitmproxy uses the same two functions."""
    library = SSL._lib  # type: ignore[attr-defined]  # see above
    parameters = library.SSL_get0_param(ssl_conn._ssl)
    if _is_address(name):
        packed = ipaddress.ip_address(name).packed
        done = library.X509_VERIFY_PARAM_set1_ip(parameters, packed, len(packed))
    else:
        encoded = name.encode("idna")
        library.X509_VERIFY_PARAM_set_hostflags(parameters, library.X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS)
        done = library.X509_VERIFY_PARAM_set1_host(parameters, encoded, len(encoded))
    if done != 1:
        raise ValueError(f"OpenSSL does not take {name!r} as a server's name")
