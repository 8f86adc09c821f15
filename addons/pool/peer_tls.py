"""TLS to another node's hub: verifies that the hub is that node's, and presents this node's certificate."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable

from cryptography import x509
from OpenSSL import SSL

from addons.certificates.client_certificates import node_of
from addons.link.servers import Server
from addons.link.tls import Expected, client_context, connection_to, load_certificate
from kube.http.kubeconfig import Credentials


def peer_connection(
    credentials: Credentials,
    authorities: Callable[[], Iterable[x509.Certificate]],
    server: Server,
    alpn: list[bytes],
) -> SSL.Connection:
    """Return a client's TLS connection before its ClientHello. The handshake fails unless the peer is the server's
    node.

    `authorities` are the cluster's CAs besides the kubeconfig's. ValueError or OpenSSL.SSL.Error if the credentials are
    unusable.
    """

    context = client_context({*credentials.cluster.authorities, *authorities()})
    certificate, key = credentials.user.certificate.read(), credentials.user.key.read()
    if certificate:
        load_certificate(context, certificate, key)
    expected = Expected(f"node {server.node}", lambda shown: is_hub_of(shown, server))
    return connection_to(expected, context, alpn)


def is_hub_of(certificate: x509.Certificate, server: Server) -> bool:
    """Whether a certificate belongs to the server's node: by its address, its name, or its user `system:node:NAME`."""
    if node_of(certificate) == server.node:
        return True
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    dns = names.get_values_for_type(x509.DNSName)
    try:
        is_named = ipaddress.ip_address(server.host) in names.get_values_for_type(x509.IPAddress)
    except ValueError:
        is_named = server.host in dns  # a relay may have a name instead of an address
    return is_named or server.node in dns
