"""Certificates of a test cluster: one CA that issues what servers, nodes, admins and token signers need."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NODES_GROUP = "system:nodes"
"""The group that the Node authorizer asks for; a node's user name is `system:node:<name>`."""
ADMIN_GROUP = "system:masters"
"""Passes every authorizer of kube-apiserver."""
LIFETIME = timedelta(days=2)
"""The life of CA and certificates: longer than any test run."""
BACKDATING = timedelta(minutes=5)
"""A certificate is valid from a little before now, so that clocks that differ a bit agree on it."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Writes `<name>.crt` and `<name>.key` (0600) and returns both paths."""
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.touch(mode=0o600)
        key.write_bytes(self.key)
        return certificate, key


class Authority:
    """A certificate authority whose certificates pass OpenSSL's strict checks (Python 3.13's default)."""

    def __init__(self, name: str = "edgehub test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name(name)
        public = self._key.public_key()
        certificate = (
            _builder(self._subject, self._subject, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def credential(self) -> Credential:
        """The authority itself, for a signer in the cluster."""
        return Credential(self.certificate, _pem(self._key))

    def issue_server(self, name: str, hosts: Sequence[str], groups: Sequence[str] = ()) -> Credential:
        """A server certificate for these DNS names and IP addresses."""
        return self._issue(_name(name, groups), ExtendedKeyUsageOID.SERVER_AUTH, hosts)

    def sign_request(self, request: bytes, life: timedelta, age: timedelta = timedelta(0)) -> bytes:
        """A certificate (PEM) as a signer of the cluster makes one of a request (PEM). It began `age` ago."""
        asked = x509.load_pem_x509_csr(request)
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(asked.subject)
            .issuer_name(self._subject)
            .public_key(asked.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - age)
            .not_valid_after(now - age + life)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        )
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(own, critical=False)
        for extension in asked.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue_client(self, user: str, groups: Sequence[str] = ()) -> Credential:
        """A client certificate; kube-apiserver reads CN as the user and each O as a group."""
        return self._issue(_name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def issue_node(self, node: str, lifetime: timedelta = LIFETIME) -> Credential:
        """The certificate that a kubelet gets at its bootstrap, and that a hub on that node uses."""
        subject = _name(f"system:node:{node}", [NODES_GROUP])
        return self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH, (), lifetime)

    def issue_admin(self) -> Credential:
        """A cluster admin's client certificate."""
        return self.issue_client("admin", [ADMIN_GROUP])

    def _issue(
        self,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        hosts: Sequence[str],
        lifetime: timedelta = LIFETIME,
    ) -> Credential:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, self._subject, key.public_key(), lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Credential(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def signing_key() -> bytes:
    """A private key (PEM) for service account tokens; kube-apiserver derives the public one."""
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


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: timedelta = LIFETIME
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATING)
        .not_valid_after(now + lifetime)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
