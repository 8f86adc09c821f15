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
from cryptography.hazmat.primitives.asymmetric import ec
from OpenSSL import SSL

from kube.certificate_authority import (
    CertificateAuthority,
    certificate_pem,
    key_of,
    key_pem,
    make_authority,
    names_of,
)

logger = logging.getLogger(__name__)

AUTHORITY_DAYS = 3650
"""Days of the local CA, as kubeadm's. Pods get it by hand or by ConfigMap, so it should outlive most nodes."""
SERVING_DAYS = 365
BACKDATING = datetime.timedelta(hours=1)
"""A certificate begins so long before now. The clocks of edge nodes and pods differ, until NTP has corrected them."""
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
        for certificate in self.chain:
            context.add_extra_chain_cert(certificate)
        context.use_privatekey(self.key)

    def expiry(self) -> datetime.datetime | None:
        return self.certificate.not_valid_after_utc

    @property
    def is_valid(self) -> bool:
        return self.certificate.not_valid_before_utc <= now() < self.certificate.not_valid_after_utc

    @property
    def pem(self) -> bytes:
        """All of it in one file, as kubelet keeps its own."""
        return b"".join(map(certificate_pem, (self.certificate, *self.chain))) + key_pem(self.key)


class ServingCertificate:
    """A certificate and key in files. Each handshake looks whether they changed, so the operator may rotate them."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key

    @property
    def mark(self) -> Hashable:
        """What differs when a file was written or replaced. OSError where there is none."""
        files = (self._certificate.stat(), self._key.stat())
        return tuple((status.st_ino, status.st_mtime_ns, status.st_size) for status in files)

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
    return Pair(leaf, key_of(leaf, pem), tuple(chain))


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
        leaf = x509.load_pem_x509_certificate(certificate.read_bytes())
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.read_bytes()))
        key_of(leaf, key.read_bytes())
        names = names_of(leaf)
    except Exception as error:
        if certificate.exists():
            logger.warning("making the TLS port's certificate anew: %s", error)
        return False
    # A clock that was wrong at the last start may have signed for a time to come.
    is_in_date = (
        leaf.not_valid_before_utc <= now() < leaf.not_valid_after_utc - datetime.timedelta(days=RENEW_DAYS)
    )
    return set(names) == {*SERVICE_NAMES, *addresses} and is_in_date


def _sign(folder: Path, certificate: Path, key: Path, addresses: list[str]) -> None:
    signed, signed_key = _authority(folder).issue(
        "edgehub",
        (*SERVICE_NAMES, *addresses),
        now() - BACKDATING,
        now() + datetime.timedelta(days=SERVING_DAYS),
    )
    write_file(key, key_pem(signed_key))
    write_file(certificate, certificate_pem(signed))


def _authority(folder: Path) -> CertificateAuthority:
    certificate, key = folder / "ca.crt", folder / "ca.key"
    try:
        leaf = x509.load_pem_x509_certificate(certificate.read_bytes())
        return CertificateAuthority(leaf, key_of(leaf, key.read_bytes()))
    except (OSError, ValueError) as error:
        if key.exists():
            logger.warning("making the local CA anew, so pods need the new ca.crt: %s", error)
    ends = now() + datetime.timedelta(days=AUTHORITY_DAYS)
    made = make_authority("edgehub local CA", now() - BACKDATING, ends)
    write_file(key, key_pem(made.key))
    write_file(certificate, certificate_pem(made.certificate))
    return made


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
