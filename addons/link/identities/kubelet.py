"""The kubelet of this node, which the hub calls while the cloud is away: its address and its TLS.

The files are read for each connection: such calls are rare, and a renewed file applies at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from addons.link.servers import Server
from addons.link.tls import client_connection, client_context, load_certificate

KUBELET = "kubelet of this node"
"""Stands for a node's name in the key of kubelet's connections; node names contain no spaces."""
LOOPBACK = "127.0.0.1"
"""Address at which the hub calls kubelet: no other node can answer there, and kubelet by default listens on all
addresses.
"""


def kubelet_at(port: int) -> Server:
    return Server("https", LOOPBACK, port, KUBELET)


class KubeletAccess(NamedTuple):
    """The certificate that the hub presents to kubelet, and the CA and the name that kubelet must have."""

    node: str
    certificate: Path
    key: Path
    authority: Path

    @classmethod
    def of(
        cls, node: str, certificate: Path | None, key: Path | None, authority: Path
    ) -> KubeletAccess | None:
        """Return the access; None without a certificate and its key."""
        return None if certificate is None or key is None else cls(node, certificate, key, authority)

    def check(self) -> None:
        """Raise ValueError, naming the option and its file, if a file cannot be read. kubelet creates its own files
        when it starts.
        """
        options = ("client_certificate", "client_key", "certificate_authority")
        for option, file in zip(options, (self.certificate, self.key, self.authority), strict=True):
            try:
                file.read_bytes()
            except OSError as error:
                raise ValueError(f"hub_kubelet_{option} {file}: {error.strerror}") from None

    def tls(self, offers: list[bytes]) -> SSL.Connection:
        """Return TLS before its handshake. OSError, ValueError or OpenSSL.SSL.Error if the files cannot be used.

        The expected name is the node's, which kubelet's certificate has whether it is self-signed or issued by the
        cluster.
        """
        context = client_context(x509.load_pem_x509_certificates(self.authority.read_bytes()))
        load_certificate(context, self.certificate.read_bytes(), self.key.read_bytes())
        return client_connection(context, self.node, offers)

    def user(self) -> tuple[str, list[str]]:
        """Return the user name and groups by which kubelet sees the hub. OSError or ValueError if the certificate
        cannot be read.
        """
        subject = x509.load_pem_x509_certificates(self.certificate.read_bytes())[0].subject
        names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        groups = [
            str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        ]
        return (names or [""])[0], [*groups, "system:authenticated"]
