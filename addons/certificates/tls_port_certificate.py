"""The TLS port's certificate: the local CA's, the operator's, or the cluster's, by the address that a client called.

Each handshake takes the current certificate, so neither a renewal nor a new address needs a restart. mitmproxy has read
the ClientHello when it asks for the server's side of TLS, so the choice can follow the called name. The cluster signs
no name of the Kubernetes Service for a node, which could then stand in for the API server anywhere: clients by such a
name get the certificate of the local CA.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import logging
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from cryptography import x509

from addons.certificates.requested_certificate import RequestedCertificate
from addons.certificates.serving_certificate import Certificate, Pair, now, read_pair
from kube.certificate_authority import (
    CertificateAuthority,
    certificate_pem,
    key_of,
    key_pem,
    make_authority,
    names_of,
)
from kube.concurrency.notifier import comes_within
from kube.disk.atomic_file import read_file, write_file

FILE = "pki/cluster.pem"
"""The cluster's certificate and its key, in the state folder."""
LOCAL_AUTHORITY = "pki/ca.crt"
"""The certificate of the local CA, in the state folder."""
CHECK_INTERVAL = 3600.0
"""Seconds between looks at the certificate's end, which is RENEW_DAYS away when it is renewed."""
AUTHORITY_DAYS = 3650
"""Days of the local CA, as kubeadm's. People copy it to pods, so it should outlive most nodes."""
SERVING_DAYS = 365
BACKDATING = datetime.timedelta(hours=1)
"""A certificate begins so long before now. The clocks of edge nodes and pods differ, until NTP has corrected them."""
RENEW_DAYS = 30
"""Days before its end at which the hub makes a new serving certificate."""
SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
)
"""How pods call the API server. They must not notice that the hub answers."""

logger = logging.getLogger(__name__)


class TlsPortCertificate:
    """Chooses for each handshake."""

    def __init__(self, local: Callable[[], Certificate], asked: RequestedCertificate | None = None) -> None:
        """`local` gives the operator's certificate or the local CA's; `asked` is the cluster's, where the hub asks."""
        self._local = local
        self._asked = asked

    def shown_to(self, called: str) -> Certificate:
        """The certificate for a client that called this name or address."""
        pair = self._asked.current if self._asked is not None else None
        return pair if pair is not None and called in names_of(pair.certificate) else self._local()

    def trusted_hosts(self, hosts: Iterable[str]) -> tuple[str, ...]:
        """Return the addresses for which pods verify the TLS port's certificate by the ca.crt that they have.

        These are the addresses that the cluster has signed, since a renewal that is late changes no address. All where
        the hub does not ask the cluster: then the operator gives pods a CA.
        """
        if self._asked is None:
            return tuple(hosts)
        signed = self._asked.latest
        names = names_of(signed.certificate) if signed is not None else ()
        return tuple(host for host in hosts if host in names)

    def expiry(self) -> datetime.datetime | None:
        """When the certificate ends that most pods see: the cluster's, or else the local."""
        pair = self._asked.current if self._asked is not None else None
        return (pair or self._local()).expiry()


class OwnCertificate:
    """The certificate that the local CA in a folder signs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._addresses: frozenset[str] = frozenset()
        self._pair: Pair | None = None
        self._moved = asyncio.Event()

    def current(self) -> Pair:
        """The last one, after `sign`."""
        assert self._pair is not None
        return self._pair

    def sign(self, addresses: Iterable[str]) -> None:
        """Make or renew the certificate for these addresses where need be. Blocks for some milliseconds.

        OSError when the folder cannot be written. The first certificate is then made in a temporary folder.
        """
        self._addresses = frozenset(addresses)
        try:
            made = own_certificate(self._folder, self._addresses)
        except OSError as error:
            if self._pair is not None:
                raise  # pods trust the CA in the folder, so a CA of another one would not help them
            temporary = Path(tempfile.mkdtemp(prefix="edgehub-pki-"))
            logger.error(
                "%s cannot be written (%s): the TLS port's CA is in %s until a restart",
                self._folder,
                error,
                temporary,
            )
            self._folder = temporary
            made = own_certificate(self._folder, self._addresses)
        self._pair = made

    def move(self, addresses: Iterable[str]) -> None:
        """Request a certificate for other addresses, soon."""
        self._addresses = frozenset(addresses)
        self._moved.set()

    async def run(self) -> None:
        """Renew the certificate in time, and when the addresses change, until cancelled."""
        while True:
            await comes_within(CHECK_INTERVAL, self._moved.wait())
            self._moved.clear()
            try:
                await asyncio.to_thread(self.sign, self._addresses)
            except Exception as error:
                # The task must live on: the certificate that is shown has days left, and the folder may be back.
                logger.error(
                    "the TLS port's certificate cannot be renewed, the next try is in an hour: %s", error
                )


def own_certificate(folder: Path, addresses: Iterable[str]) -> Pair:
    """The certificate that the local CA in `folder` signs for the addresses, made or renewed where need be.

    OSError when the folder cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate, key = folder / "serving.crt", folder / "serving.key"
    wanted = sorted({str(ipaddress.ip_address(address)) for address in addresses})
    if not _is_good(certificate, key, folder / "ca.crt", wanted):
        _sign(folder, certificate, key, wanted)
    return read_pair(read_file(certificate) + read_file(key))


def _is_good(certificate: Path, key: Path, authority: Path, addresses: list[str]) -> bool:
    try:
        leaf = x509.load_pem_x509_certificate(read_file(certificate))
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(read_file(authority)))
        key_of(leaf, read_file(key))
        names = names_of(leaf)
    except Exception as error:
        if certificate.exists():
            logger.warning("renewing the TLS port's certificate: %s", error)
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
        leaf = x509.load_pem_x509_certificate(read_file(certificate))
        return CertificateAuthority(leaf, key_of(leaf, read_file(key)))
    except (OSError, ValueError) as error:
        if key.exists():
            logger.warning("making a new local CA, pods need the new ca.crt: %s", error)
    ends = now() + datetime.timedelta(days=AUTHORITY_DAYS)
    made = make_authority("edgehub local CA", now() - BACKDATING, ends)
    write_file(key, key_pem(made.key))
    write_file(certificate, certificate_pem(made.certificate))
    return made
