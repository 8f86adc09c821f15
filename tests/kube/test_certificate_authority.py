"""An authority's certificates pass a strict verifier, only for their names and their validity; keys match them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from kube.certificate_authority import (
    CertificateAuthority,
    certificate_pem,
    general_name,
    key_of,
    key_pem,
    make_authority,
    names_of,
)

BEGINS = datetime(2026, 11, 22, tzinfo=UTC)
ENDS = BEGINS + timedelta(days=30)
NAMES = ("web.ns.svc", "10.0.0.5", "::1")


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return make_authority("test CA", BEGINS, ENDS)


def trusts(authority: CertificateAuthority, certificate: x509.Certificate, name: str, at: datetime) -> bool:
    """Return True if a client that trusts the authority accepts a certificate of a server with this name."""
    subject = general_name(name)
    assert isinstance(subject, x509.DNSName | x509.IPAddress)
    verifier = PolicyBuilder().store(Store([authority.certificate])).time(at).build_server_verifier(subject)
    try:
        verifier.verify(certificate, [])
    except VerificationError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "at", "is_trusted"),
    [
        *((name, BEGINS, True) for name in NAMES),
        ("web.ns.svc", ENDS, True),
        ("web.ns.svc", BEGINS - timedelta(seconds=1), False),
        ("web.ns.svc", ENDS + timedelta(seconds=1), False),
        ("other.ns.svc", BEGINS, False),
        ("10.0.0.6", BEGINS, False),
    ],
)
def test_a_serving_certificate_is_valid_only_for_its_names_and_period(
    authority: CertificateAuthority, name: str, at: datetime, is_trusted: bool
) -> None:
    certificate, key = authority.issue("web", NAMES, BEGINS, ENDS)
    assert names_of(certificate) == tuple(sorted(NAMES))
    assert key_of(certificate, key_pem(key)).private_numbers() == key.private_numbers()
    assert trusts(authority, certificate, name, at) is is_trusted


def test_another_authority_of_the_same_name_is_not_trusted(authority: CertificateAuthority) -> None:
    certificate, _ = make_authority("test CA", BEGINS, ENDS).issue("web", NAMES, BEGINS, ENDS)
    assert not trusts(authority, certificate, NAMES[0], BEGINS)


def test_an_authority_is_not_accepted_as_a_server_certificate(authority: CertificateAuthority) -> None:
    assert not names_of(authority.certificate)
    assert not trusts(authority, authority.certificate, NAMES[0], BEGINS)


def private(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey, passphrase: bytes = b"") -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        encryption = serialization.BestAvailableEncryption(passphrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"garbage",
        private(ec.generate_private_key(ec.SECP256R1())),
        private(ec.generate_private_key(ec.SECP256R1()), b"secret"),
        private(ed25519.Ed25519PrivateKey.generate()),
    ],
    ids=["nothing", "garbage", "another", "with a passphrase", "another kind"],
)
def test_a_key_that_does_not_match_is_a_value_error(authority: CertificateAuthority, pem: bytes) -> None:
    with pytest.raises(ValueError, match=r"key|PEM|deserialize"):
        key_of(authority.certificate, pem)


def test_a_certificate_survives_encoding_and_decoding(authority: CertificateAuthority) -> None:
    assert x509.load_pem_x509_certificate(certificate_pem(authority.certificate)) == authority.certificate
