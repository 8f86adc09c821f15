"""A program's own certificate authority: its CA certificate, and the serving certificates that it signs. Pure.

The hub has one for its TLS port, the manager one for its webhook. All keys are on the curve P-256.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """A CA certificate, which clients trust, and the private key that signs."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    def issue(
        self, common_name: str, names: Iterable[str], begins: datetime.datetime, ends: datetime.datetime
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """Sign a serving certificate for DNS names and IP addresses, and return it with its new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        certificate = (
            _builder(_name(common_name), self.certificate.subject, key, begins, ends)
            .add_extension(x509.SubjectAlternativeName([*map(general_name, names)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return certificate, key


def make_authority(
    common_name: str, begins: datetime.datetime, ends: datetime.datetime
) -> CertificateAuthority:
    """Make a new authority, which cannot sign intermediate CAs."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(common_name)
    certificate = (
        _builder(subject, subject, key, begins, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return CertificateAuthority(certificate, key)


def key_of(certificate: x509.Certificate, pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the private key in a PEM text. ValueError if it is not the certificate's key, or not an
    elliptic-curve key."""
    try:
        key = serialization.load_pem_private_key(pem, None)
    except TypeError as error:  # a key with a passphrase
        raise ValueError(f"the key cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ValueError("the key is not the certificate's")
    return key


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The IP addresses and DNS names of a certificate's subject alternative names, sorted."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return tuple(sorted({*addresses, *names.get_values_for_type(x509.DNSName)}))


def general_name(text: str) -> x509.GeneralName:
    """An IP address or a DNS name as a subject alternative name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key in PEM (PKCS #8), without a passphrase."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begins: datetime.datetime,
    ends: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
