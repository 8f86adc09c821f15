"""Certificates of a test cluster: one CA that issues certificates for servers, nodes, admins and token signers."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kube.certificate_authority import certificate_pem, general_name, make_authority

NODES_GROUP = "system:nodes"
"""The group that the Node authorizer requires; a node's user name is `system:node:<name>`."""
ADMIN_GROUP = "system:masters"
"""A group that every authorizer of kube-apiserver permits."""
LIFETIME = timedelta(days=2)
"""The validity of CA and certificates: longer than any test run."""
BACKDATING = timedelta(minutes=5)
"""How long before now a certificate starts, as clocks differ."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write `<name>.crt` and `<name>.key` (0600); return both paths."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.touch(mode=0o600)
        key.write_bytes(self.key)
        return certificate, key


class Authority:
    """A certificate authority whose certificates pass OpenSSL's strict checks (Python 3.13's default)."""

    def __init__(self, name: str = "edgehub test CA") -> None:
        now = datetime.now(UTC)
        self._authority = make_authority(name, now - BACKDATING, now + LIFETIME)
        self.certificate = certificate_pem(self._authority.certificate)

    @property
    def credential(self) -> Credential:
        """Return the CA's own certificate and key, for a signer in the cluster."""
        return Credential(self.certificate, _pem(self._authority.key))

    def issue_server(self, name: str, hosts: Sequence[str], groups: Sequence[str] = ()) -> Credential:
        """Issue a server certificate for these DNS names and IP addresses."""
        names = x509.SubjectAlternativeName([*map(general_name, hosts)])
        return self._issue(_name(name, groups), _SERVER, *([names] if hosts else []))

    def server_context(self, folder: Path, hosts: Sequence[str], name: str = "cloud") -> ssl.SSLContext:
        """Return the TLS context of a server that accepts client certificates of this authority, but requires none."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue_server(name, hosts).write(folder, "server"))
        context.load_verify_locations(cadata=self.certificate.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def sign_request(self, request: bytes, life: timedelta, age: timedelta = timedelta(0)) -> bytes:
        """Sign a request (PEM) as a signer of the cluster does; return the certificate (PEM). It started `age` ago."""
        asked = x509.load_pem_x509_csr(request)
        extensions = [(_SERVER, False), *((each.value, each.critical) for each in asked.extensions)]
        return self._sign(asked.subject, asked.public_key(), datetime.now(UTC) - age, life, extensions)

    def issue_client(self, user: str, groups: Sequence[str] = ()) -> Credential:
        """Issue a client certificate; kube-apiserver reads CN as the user and each O as a group."""
        return self._issue(_name(user, groups), _CLIENT)

    def issue_node(self, node: str, lifetime: timedelta = LIFETIME) -> Credential:
        """Issue the certificate that a kubelet gets at its bootstrap, and that a hub on that node uses."""
        return self._issue(_name(f"system:node:{node}", [NODES_GROUP]), _CLIENT, lifetime=lifetime)

    def issue_admin(self) -> Credential:
        return self.issue_client("admin", [ADMIN_GROUP])

    def _issue(
        self, subject: x509.Name, *extensions: x509.ExtensionType, lifetime: timedelta = LIFETIME
    ) -> Credential:
        key, begins = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC) - BACKDATING
        optional = [(extension, False) for extension in extensions]
        certificate = self._sign(subject, key.public_key(), begins, BACKDATING + lifetime, optional)
        return Credential(certificate, _pem(key))

    def _sign(
        self,
        subject: x509.Name,
        key: CertificatePublicKeyTypes,
        begins: datetime,
        life: timedelta,
        extensions: Iterable[tuple[x509.ExtensionType, bool]],
    ) -> bytes:
        """Sign a certificate (PEM) with these extensions, critical or not, and an authority key identifier."""
        signer = self._authority
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(signer.certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + life)
        )
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
        for extension, critical in ((own, False), *extensions):
            builder = builder.add_extension(extension, critical)
        return certificate_pem(builder.sign(signer.key, hashes.SHA256()))


_SERVER = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
_CLIENT = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])


def signing_key() -> bytes:
    """Return a private key (PEM) for service account tokens; kube-apiserver derives the public key."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # "EC PRIVATE KEY": kube-apiserver finds no public key in a PKCS #8 file of an elliptic curve.
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _name(common_name: str, organisations: Sequence[str] = ()) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation) for organisation in organisations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
