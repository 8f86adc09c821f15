"""The TLS port's certificate: the local CA's, the operator's, or the cluster's, depending on the name that a client
requests.

Each handshake uses the latest certificates, so neither a renewal nor a new address needs a restart. The hub has parsed
the ClientHello by then, so the choice can depend on the server name. The cluster signs no name of the Kubernetes
Service for a node, which could otherwise impersonate the API server anywhere: clients that call such a name get the
local CA's certificate.
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
from kube.concurrency.notifier import completes_within
from kube.disk.atomic_file import read_file, write_file

FILE = "pki/cluster.pem"
"""Path in the state folder of the cluster's certificate and its key."""
LOCAL_AUTHORITY = "pki/ca.crt"
"""Path in the state folder of the local CA's certificate."""
CHECK_INTERVAL = 3600.0
"""Seconds between checks of the certificate's expiry; it is renewed RENEW_DAYS before."""
AUTHORITY_DAYS = 3650
"""Lifetime of the local CA in days, like kubeadm's. Operators copy it to pods, so it should outlive most nodes."""
SERVING_DAYS = 365
BACKDATING = datetime.timedelta(hours=1)
"""Time by which a certificate's start is backdated: clocks of edge nodes and pods differ until NTP has corrected
them.
"""
RENEW_DAYS = 30
"""Days before expiry at which the hub makes a new serving certificate."""
SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
)
"""Names by which pods call the API server: the hub's certificate must contain them."""

logger = logging.getLogger(__name__)


class TlsPortCertificate:
    """Chooses a certificate for each handshake."""

    def __init__(self, local: Callable[[], Certificate], asked: RequestedCertificate | None = None) -> None:
        """`local` returns the operator's certificate or the local CA's. `asked` is the cluster's; None if the hub
        requests none.
        """
        self._local = local
        self._asked = asked

    def shown_to(self, called: str) -> Certificate:
        """Return the certificate for a client that called this name or address."""
        pair = self._asked.current if self._asked is not None else None
        return pair if pair is not None and called in names_of(pair.certificate) else self._local()

    def trusted_hosts(self, hosts: Iterable[str]) -> tuple[str, ...]:
        """Return the addresses for which pods can verify the TLS port by their mounted ca.crt.

        These are the addresses in the latest certificate from the cluster, even an expired one, because a late renewal
        changes no address. All addresses if the hub requests none: then the operator gives pods a CA.
        """
        if self._asked is None:
            return tuple(hosts)
        signed = self._asked.latest
        names = names_of(signed.certificate) if signed is not None else ()
        return tuple(host for host in hosts if host in names)

    def expiry(self) -> datetime.datetime | None:
        """Return when the certificate expires that most pods get: the cluster's, otherwise the local one."""
        pair = self._asked.current if self._asked is not None else None
        return (pair or self._local()).expiry()


class OwnCertificate:
    """The certificate signed by the local CA in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._addresses: frozenset[str] = frozenset()
        self._pair: Pair | None = None
        self._moved = asyncio.Event()

    def current(self) -> Pair:
        """Return the last certificate. Call `sign` first."""
        assert self._pair is not None
        return self._pair

    def sign(self, addresses: Iterable[str]) -> None:
        """Make or renew the certificate for these addresses if necessary. Blocks for some milliseconds.

        OSError if the folder is not writable; the first certificate is then made in a temporary folder instead.
        """
        self._addresses = frozenset(addresses)
        try:
            made = own_certificate(self._folder, self._addresses)
        except OSError as error:
            if self._pair is not None:
                raise  # pods trust this folder's CA: a new CA elsewhere would not help them
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
        """Schedule a certificate for other addresses."""
        self._addresses = frozenset(addresses)
        self._moved.set()

    async def run(self) -> None:
        """Renew the certificate in time, and when the addresses change, until cancelled."""
        while True:
            await completes_within(CHECK_INTERVAL, self._moved.wait())
            self._moved.clear()
            try:
                await asyncio.to_thread(self.sign, self._addresses)
            except Exception as error:
                # The task must survive: the current certificate is valid for days, and the folder may become writable
                # again.
                logger.error(
                    "the TLS port's certificate cannot be renewed, the next try is in an hour: %s", error
                )


def own_certificate(folder: Path, addresses: Iterable[str]) -> Pair:
    """Return the certificate signed by the local CA in `folder` for these addresses; make or renew it if necessary.

    OSError if the folder is not writable.
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
    # If the clock was wrong at the last start, the certificate may not be valid yet.
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
