"""The webhook's certificates: a CA of the manager's own and a serving certificate, as the data of a Secret. Pure."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Mapping

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CERTIFICATE, KEY, AUTHORITY, AUTHORITY_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key"
"""Keys of the data. `ca.crt` holds the CA of now and, after a change, the one before it."""
AUTHORITY_DAYS = 365
SERVING_DAYS = 90
RENEWED_AT = 2 / 3
"""Of its life, when a certificate is replaced."""
AUTHORITY_NAME = "edgehub-manager webhook CA"


def renewed(data: Mapping[str, bytes], hosts: frozenset[str], now: datetime.datetime) -> dict[str, bytes]:
    """The data of the Secret as it must be: the same while both certificates are good for the hosts."""
    bundle = _authorities(data.get(AUTHORITY, b""))
    authority_key = _load_key(data.get(AUTHORITY_KEY, b""))
    if not bundle or not _is_pair(bundle[0], authority_key) or _is_due(bundle[0], now):
        authority_key = ec.generate_private_key(ec.SECP256R1())
        # The API server trusts both until nobody serves a certificate of the older one.
        bundle = [_make_authority(authority_key, now), *bundle][:2]
    assert authority_key is not None
    if _is_good(data, bundle[0], hosts, now):
        certificate, key = data[CERTIFICATE], data[KEY]
    else:
        serving_key = ec.generate_private_key(ec.SECP256R1())
        certificate = _pem(_make_serving(serving_key, bundle[0], authority_key, hosts, now))
        key = _key_pem(serving_key)
    return {
        CERTIFICATE: certificate,
        KEY: key,
        AUTHORITY: b"".join(_pem(each) for each in bundle),
        AUTHORITY_KEY: _key_pem(authority_key),
    }


def _is_good(
    data: Mapping[str, bytes], authority: x509.Certificate, hosts: frozenset[str], now: datetime.datetime
) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(data.get(CERTIFICATE, b""))
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:
        # Whatever is wrong with it: another one is made.
        return False
    served = {
        str(each) for kind in (x509.DNSName, x509.IPAddress) for each in names.get_values_for_type(kind)
    }
    pair = _is_pair(certificate, _load_key(data.get(KEY, b"")))
    return pair and served == hosts and not _is_due(certificate, now)


def _is_due(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return (
        now >= certificate.not_valid_before_utc + life * RENEWED_AT or now < certificate.not_valid_before_utc
    )


def _authorities(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _is_pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey | None) -> bool:
    return key is not None and key.public_key() == certificate.public_key()


def _make_authority(key: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    subject = _name(AUTHORITY_NAME)
    return (
        _builder(subject, subject, key.public_key(), AUTHORITY_DAYS, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _make_serving(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    hosts: frozenset[str],
    now: datetime.datetime,
) -> x509.Certificate:
    names = x509.SubjectAlternativeName([_general_name(host) for host in sorted(hosts)])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder(_name("edgehub-manager"), authority.subject, key.public_key(), SERVING_DAYS, now)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # The clock of the API server may be a little behind.
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
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


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
