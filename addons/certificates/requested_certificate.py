"""A certificate that the cluster signs for this node: requested when needed, stored on disk, renewed in time.

Each handshake uses the latest certificate, so a renewal closes no connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from addons.certificates.serving_certificate import Pair, now, read_pair
from addons.certificates.signing_request import (
    Reporter,
    SigningFailed,
    event_sender,
    node_names,
    serving_request,
    signed_certificate,
)
from kube.certificate_authority import key_pem, names_of
from kube.concurrency.backoff import Backoff
from kube.concurrency.notifier import Notifier, completes_within
from kube.disk.atomic_file import read_file, write_file
from kube.errors import StatusError
from kube.http.client import Client
from kube.peers import is_link_local

CHECK_INTERVAL = 3600.0
"""Seconds between checks of the certificate's age, and of the names that the node has now."""
RETRIES = (2.0, 1800.0)
"""Seconds before the first retry of a failed request, and maximum seconds between retries."""
SERVING_RENEWAL = 2 / 3
"""Fraction of its lifetime after which a port's certificate is renewed. Renewals are spread like the nodes' first
requests.
"""

type Names = Callable[[], Awaitable[tuple[str, ...]]]
"""Returns the sorted addresses and names that the certificate must contain."""
type Sign = Callable[[tuple[str, ...], ec.EllipticCurvePrivateKey, Reporter], Awaitable[bytes]]
"""Requests a certificate for these names and this key. Returns PEM, the key's own certificate first. Reports if no
signer answers.
"""

logger = logging.getLogger(__name__)


class CertificateRequest(NamedTuple):
    """The functions that request and time a certificate."""

    names: Names
    sign: Sign
    renewal: Callable[[], float] = lambda: SERVING_RENEWAL
    """Returns the fraction of its lifetime after which the certificate is renewed."""


class RequestedCertificate:
    """One certificate that the cluster signs for this node, with its key, in one file."""

    def __init__(
        self,
        what: str,
        file: Path,
        request: CertificateRequest,
        cloud_changed: Notifier,
        report: Reporter,
    ) -> None:
        """`what` names the certificate in the log. `cloud_changed` is notified when a server is up again."""
        self._what = what
        self._file = file
        self._request = request
        self._report = report
        self._cloud_changed = cloud_changed
        self._pair: Pair | None = None
        self._renewal: datetime.datetime | None = None
        self._wanted = asyncio.Event()

    @property
    def current(self) -> Pair | None:
        """The certificate, if it is valid now; otherwise None."""
        return self._pair if self._pair is not None and self._pair.is_valid else None

    @property
    def latest(self) -> Pair | None:
        """The newest certificate, even an expired one: the verifier's clock may differ."""
        return self._pair

    def want(self, wanted: bool) -> None:
        """Set whether the hub needs the certificate. It requests one only then."""
        if wanted:
            self._wanted.set()
        else:
            self._wanted.clear()

    def expiry(self) -> datetime.datetime | None:
        """Return when the newest certificate expires; None without one."""
        return self._pair.expiry() if self._pair is not None else None

    async def run(self, changed: Callable[[], None]) -> None:
        """Request the certificate, and renew it in time, until cancelled. `changed` is called after each new one."""
        await asyncio.to_thread(self.load)
        changed()
        backoff = Backoff(*RETRIES)
        while True:
            await self._wanted.wait()
            back = self._cloud_changed.wait()
            try:
                names = await self._request.names()
                if self._is_due(names):
                    await self._renew(names)
                    changed()
                    self._check_clock()
                backoff.forget()
                await self._until_due()
            except Exception as error:  # must not end the task: the cluster's answer may be anything
                delay = backoff.next(error.retry_after if isinstance(error, StatusError) else None)
                logger.warning(
                    "no new certificate %s yet: %s; next request in %.0f s", self._what, error, delay
                )
                await self._report(str(error))
                # The certificate may have expired in an outage, so a server that is up again ends the wait.
                ends_wait = asyncio.Event().wait() if isinstance(error, SigningFailed) else back
                await completes_within(delay, ends_wait)
            finally:
                back.cancel()

    async def _unanswered(self, why: str) -> None:
        logger.warning("no new certificate %s yet: %s", self._what, why)
        await self._report(why)

    def _is_due(self, names: tuple[str, ...]) -> bool:
        pair = self._pair
        if pair is None or self._renewal is None or now() < pair.certificate.not_valid_before_utc:
            return True
        return now() >= self._renewal or names_of(pair.certificate) != names

    async def _until_due(self) -> None:
        assert self._renewal is not None
        left = (self._renewal - now()).total_seconds()
        await asyncio.sleep(max(0.0, min(CHECK_INTERVAL, left)))

    async def _renew(self, names: tuple[str, ...]) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        logger.info(
            "requesting a certificate %s from the cluster, for %s", self._what, ", ".join(names) or "itself"
        )
        pem = await self._request.sign(names, key, self._unanswered)
        made = read_pair(pem + key_pem(key))
        self._take(made, now())
        logger.info("certificate %s valid until %s", self._what, made.certificate.not_valid_after_utc)
        await asyncio.to_thread(self._keep, made)

    def _check_clock(self) -> None:
        """Raise SigningFailed if a certificate just signed is not valid now: the next one would not be either."""
        assert self._pair is not None
        if not self._pair.is_valid:
            signed = self._pair.certificate
            raise SigningFailed(
                f"the cluster has just signed one from {signed.not_valid_before_utc} to {signed.not_valid_after_utc}, "
                f"and this node's clock says {now():%Y-%m-%d %H:%M:%S+00:00}: set the clock (NTP)"
            )

    def _take(self, pair: Pair, since: datetime.datetime) -> None:
        self._pair = pair
        self._renewal = renewal_of(pair.certificate, since, self._request.renewal())

    def load(self) -> None:
        """Read the certificate from disk, if it exists. Blocks briefly."""
        with contextlib.suppress(OSError, ValueError):
            pair = read_pair(read_file(self._file))
            written = datetime.datetime.fromtimestamp(self._file.stat().st_mtime, datetime.UTC)
            self._take(pair, min(written, now()))

    def _keep(self, pair: Pair) -> None:
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(self._file, pair.pem)
        except OSError as error:
            logger.error(
                "certificate %s cannot be stored (%s): the hub requests another one after a restart",
                self._what,
                error,
            )


def renewal_of(certificate: x509.Certificate, since: datetime.datetime, share: float) -> datetime.datetime:
    """Return when a certificate received at `since` has used this fraction of its lifetime.

    Signers may backdate a certificate (kube-controller-manager: by 5 minutes), so the lifetime counts from `since`:
    otherwise a short one would be used up at once.
    """
    begins, ends = max(certificate.not_valid_before_utc, since), certificate.not_valid_after_utc
    return begins + (ends - begins) * share


def serving_certificate_of(
    port: str,
    node: str,
    client: Client,
    file: Path,
    cloud_changed: Notifier,
    also: Callable[[], Iterable[str]] = tuple,
) -> RequestedCertificate:
    """Return a serving port's certificate, for the addresses of the Node and of `also`.

    An address of `also` that the cluster certifies for no node is omitted, because the manager would deny a request
    with it. `client` sends with the node's own identity.
    """
    left_out: set[str] = set()

    async def names() -> tuple[str, ...]:
        own = set(await node_names(client, node))
        strange = {name for name in also() if name not in own and not is_link_local(name)}
        for name in sorted(strange - left_out):
            logger.warning(
                "the cluster signs no certificate for %s: clients that call it see the local CA's certificate. "
                "Name an address of the Node, or a link-local one",
                name,
            )
        left_out.clear()
        left_out.update(strange)
        return tuple(sorted({*own, *also()} - strange))

    async def sign(names: tuple[str, ...], key: ec.EllipticCurvePrivateKey, unanswered: Reporter) -> bytes:
        return await signed_certificate(client, serving_request(node, names, key), unanswered)

    what = f"of the {port} port"
    return RequestedCertificate(
        what, file, CertificateRequest(names, sign), cloud_changed, event_sender(client, node, what)
    )
