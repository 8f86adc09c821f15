"""Certificates that the hub's ports present: pairs in memory, and the operator's files."""

from __future__ import annotations

import asyncio
import datetime
import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from OpenSSL import SSL

from kube.certificate_authority import certificate_pem, key_of, key_pem
from kube.disk.atomic_file import read_file


class Certificate(Protocol):
    """A certificate and its key, for a listener."""

    @property
    def mark(self) -> Hashable:
        """Value that changes with the certificate."""

    def use_in(self, context: SSL.Context) -> None:
        """Load the certificate into a context. OpenSSL.SSL.Error if it cannot be used."""

    def expiry(self) -> datetime.datetime | None:
        """Return when it expires; None if it cannot be read."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key in memory. Read from two files, they could belong to different certificates during a
    rotation.
    """

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    chain: tuple[x509.Certificate, ...] = ()
    """Intermediate certificates, up to the authority that clients trust."""

    @property
    def mark(self) -> Hashable:
        """Value that changes with the certificate."""
        return (self.certificate, *self.chain)

    def use_in(self, context: SSL.Context) -> None:
        """Load the certificate into a context."""
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
        """Certificates and key as one PEM text, like kubelet's own file."""
        return b"".join(map(certificate_pem, (self.certificate, *self.chain))) + key_pem(self.key)


class ServingCertificate:
    """A certificate and key in files. Each handshake checks whether they changed, so the operator can rotate them."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key

    @property
    def mark(self) -> Hashable:
        """Value that changes when a file is written or replaced. OSError if a file is missing."""
        files = (self._certificate.stat(), self._key.stat())
        return tuple((status.st_ino, status.st_mtime_ns, status.st_size) for status in files)

    def use_in(self, context: SSL.Context) -> None:
        """Load the certificate into a context. OpenSSL.SSL.Error if key and certificate do not match."""
        context.use_certificate_chain_file(os.fspath(self._certificate))
        context.use_privatekey_file(os.fspath(self._key))

    def expiry(self) -> datetime.datetime | None:
        """Return when the file's certificate expires; None if it cannot be read."""
        try:
            return x509.load_pem_x509_certificate(read_file(self._certificate)).not_valid_after_utc
        except (OSError, ValueError):
            return None


class StaticCertificate:
    """The operator's files for the peer port, with the interface of `RequestedCertificate`."""

    def __init__(self, files: ServingCertificate) -> None:
        self._files = files

    @property
    def current(self) -> ServingCertificate:
        return self._files

    def expiry(self) -> datetime.datetime | None:
        return self._files.expiry()

    def want(self, wanted: bool) -> None:
        """Do nothing: the files exist already."""

    async def run(self, _changed: Callable[[], None]) -> None:
        """Wait until cancelled: the operator renews the files."""
        await asyncio.Event().wait()


def read_pair(pem: bytes) -> Pair:
    """Parse certificates and key from a PEM text. ValueError if the key is not the first certificate's."""
    leaf, *chain = x509.load_pem_x509_certificates(pem)
    return Pair(leaf, key_of(leaf, pem), tuple(chain))


def now() -> datetime.datetime:
    """Return the wall-clock time, by which certificates expire."""
    return datetime.datetime.now(datetime.UTC)
