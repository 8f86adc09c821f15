"""The kubelet of this node, which the hub calls while the cloud is away: its address, and its TLS.

The files are read for each connection: people call it rarely, and a renewed file applies at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from addons.link.servers import Server
from addons.link.tls import client_connection, client_context, show_certificate

KUBELET = "kubelet of this node"
"""Replaces the name of a node in a server's key; no node's name has blanks."""
LOOPBACK = "127.0.0.1"
"""The address at which the hub calls it: no other node can answer there, and kubelet listens on every address by
default.
"""


def kubelet_at(port: int) -> Server:
    return Server("https", LOOPBACK, port, KUBELET)


class KubeletAccess(NamedTuple):
    """The hub's identity towards kubelet, and kubelet's expected one."""

    node: str
    certificate: Path
    key: Path
    authority: Path

    @classmethod
    def of(
        cls, node: str, certificate: Path | None, key: Path | None, authority: Path
    ) -> KubeletAccess | None:
        """None without a certificate and its key."""
        return None if certificate is None or key is None else cls(node, certificate, key, authority)

    def check(self) -> None:
        """ValueError, with the option and its file, where one cannot be read: kubelet makes its own at its start."""
        options = ("client_certificate", "client_key", "certificate_authority")
        for option, file in zip(options, (self.certificate, self.key, self.authority), strict=True):
            try:
                file.read_bytes()
            except OSError as error:
                raise ValueError(f"hub_kubelet_{option} {file}: {error.strerror}") from None

    def tls(self, offers: list[bytes]) -> SSL.Connection:
        """TLS before its handshake; OSError, ValueError or OpenSSL.SSL.Error where the files cannot be used.

        kubelet's certificate names the node: a self-signed one has no other name, and one of the cluster names it, too.
        """
        context = client_context(x509.load_pem_x509_certificates(self.authority.read_bytes()))
        show_certificate(context, self.certificate.read_bytes(), self.key.read_bytes())
        return client_connection(context, self.node, offers)

    def user(self) -> tuple[str, list[str]]:
        """Whom kubelet sees, by name and groups; OSError or ValueError where the certificate cannot be read."""
        subject = x509.load_pem_x509_certificates(self.certificate.read_bytes())[0].subject
        names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        groups = [
            str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        ]
        return (names or [""])[0], [*groups, "system:authenticated"]
