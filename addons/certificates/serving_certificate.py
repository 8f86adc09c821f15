"""The files of the TLS port's certificate: the operator's, or those that a local CA in the state folder signs."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import logging
import os
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import SSL

logger = logging.getLogger(__name__)

AUTHORITY_DAYS = 3650
"""Days of the local CA, as kubeadm's. Pods get it by hand or by ConfigMap, so it should outlive most nodes."""
SERVING_DAYS = 365
RENEW_DAYS = 30
"""Days before its end at which the serving certificate is made anew."""
SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
)
"""How pods call the API server. They must not notice that the hub answers."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key in memory: a handshake between two files could get a key of another certificate."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    chain: tuple[x509.Certificate, ...] = ()
    """Between the certificate and the authority that clients know."""

    @property
    def mark(self) -> Hashable:
        """What differs when the certificate is another."""
        return (self.certificate, *self.chain)

    def use_in(self, context: SSL.Context) -> None:
        """Show the certificate in handshakes of a context."""
        context.use_certificate(self.certificate)
        for each in self.chain:
            context.add_extra_chain_cert(each)
        context.use_privatekey(self.key)

    def expiry(self) -> datetime.datetime | None:
        return self.certificate.not_valid_after_utc

    @property
    def is_valid(self) -> bool:
        return self.certificate.not_valid_before_utc <= now() < self.certificate.not_valid_after_utc

    @property
    def pem(self) -> bytes:
        """All of it in one file, as kubelet keeps its own."""
        certificates = (
            each.public_bytes(serialization.Encoding.PEM) for each in (self.certificate, *self.chain)
        )
        return b"".join(certificates) + key_pem(self.key)


class ServingCertificate:
    """A certificate and key in files. Each handshake looks whether they changed, so the operator may rotate them."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key

    @property
    def mark(self) -> Hashable:
        """What differs when a file was written or replaced. OSError where there is none."""
        found = (self._certificate.stat(), self._key.stat())
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in found)

    def use_in(self, context: SSL.Context) -> None:
        """Show the certificate in handshakes of a context. OpenSSL.SSL.Error when the files are no pair."""
        context.use_certificate_chain_file(os.fspath(self._certificate))
        context.use_privatekey_file(os.fspath(self._key))

    def expiry(self) -> datetime.datetime | None:
        """When the certificate in the file ends; None where there is none that can be read."""
        try:
            return x509.load_pem_x509_certificate(self._certificate.read_bytes()).not_valid_after_utc
        except (OSError, ValueError):
            return None

    def load(self) -> Pair:
        """The certificate and its key. OSError, or ValueError when the hub has not made them or they are no pair."""
        return read_pair(self._certificate.read_bytes() + self._key.read_bytes())


class GivenCertificate:
    """The operator's files for the peer port."""

    def __init__(self, files: ServingCertificate) -> None:
        self._files = files

    @property
    def current(self) -> ServingCertificate:
        return self._files

    def expiry(self) -> datetime.datetime | None:
        return self._files.expiry()

    def want(self, wanted: bool) -> None:
        """The files are there whether anybody needs them or not."""

    async def run(self, _changed: Callable[[], None]) -> None:
        """Nothing is renewed here."""
        await asyncio.Event().wait()


def read_pair(pem: bytes) -> Pair:
    """The certificates and the key in a PEM text; ValueError where the key is not that of the first certificate."""
    leaf, *chain = x509.load_pem_x509_certificates(pem)
    return Pair(leaf, _check_pair(leaf, serialization.load_pem_private_key(pem, None)), tuple(chain))


def own_certificate(folder: Path, addresses: Iterable[str]) -> ServingCertificate:
    """The certificate that the local CA in `folder` signs for the addresses, made or renewed where need be.

    OSError when the folder cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate, key = folder / "serving.crt", folder / "serving.key"
    wanted = sorted({str(ipaddress.ip_address(address)) for address in addresses})
    if not _is_good(certificate, key, folder / "ca.crt", wanted):
        _sign(folder, certificate, key, wanted)
    return ServingCertificate(certificate, key)


def now() -> datetime.datetime:
    """Wall time, by which certificates end."""
    return datetime.datetime.now(datetime.UTC)


def _is_good(certificate: Path, key: Path, authority: Path, addresses: list[str]) -> bool:
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        found.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.read_bytes()))
        _check_pair(found, serialization.load_pem_private_key(key.read_bytes(), None))
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception as error:
        if certificate.exists():
            logger.warning("making the TLS port's certificate anew: %s", error)
        return False
    shown = sorted(str(address) for address in names.get_values_for_type(x509.IPAddress))
    # A clock that was wrong at the last start may have signed for a time to come.
    is_in_date = (
        found.not_valid_before_utc <= now() < found.not_valid_after_utc - datetime.timedelta(days=RENEW_DAYS)
    )
    return shown == addresses and is_in_date


def _sign(folder: Path, certificate: Path, key: Path, addresses: list[str]) -> None:
    authority, authority_key = _authority(folder)
    serving_key = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVICE_NAMES]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    builder = (
        _builder("edgehub", authority.subject, SERVING_DAYS, serving_key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
    )
    write_file(key, key_pem(serving_key))
    write_file(
        certificate, builder.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate, key = folder / "ca.crt", folder / "ca.key"
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        return found, _check_pair(found, serialization.load_pem_private_key(key.read_bytes(), None))
    except (OSError, ValueError) as error:
        if key.exists():
            logger.warning("making the local CA anew, so pods need the new ca.crt: %s", error)
    new_key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "edgehub local CA")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder("edgehub local CA", subject, AUTHORITY_DAYS, new_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(new_key.public_key()), critical=False)
    )
    made = builder.sign(new_key, hashes.SHA256())
    write_file(key, key_pem(new_key))
    write_file(certificate, made.public_bytes(serialization.Encoding.PEM))
    return made, new_key


def _check_pair(certificate: x509.Certificate, key: object) -> ec.EllipticCurvePrivateKey:
    """The key, which must be the certificate's and on an elliptic curve; ValueError otherwise."""
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ValueError("the key is not the certificate's")
    return key


def _builder(
    name: str, issuer: x509.Name, days: int, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    begins = now()
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        # Clocks of edge nodes and pods differ. An hour covers what NTP has not corrected yet.
        .not_valid_before(begins - datetime.timedelta(hours=1))
        .not_valid_after(begins + datetime.timedelta(days=days))
    )


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a key that a power failure cut short would fail each handshake."""
    draft = path.with_suffix(path.suffix + ".new")
    draft.unlink(missing_ok=True)
    # The key goes to a new file, never through a link: another user could have planted one that leads elsewhere.
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
