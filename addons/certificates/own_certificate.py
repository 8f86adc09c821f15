"""The TLS port's own certificate while the hub runs: renewed on a timer, signed anew when the hub's address changes.

Each handshake takes the certificate as it is then, so neither needs a restart.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import tempfile
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Protocol

from OpenSSL import SSL

from addons.certificates.serving_certificate import Pair, own_certificate
from kube.concurrency.pulse import comes_within

CHECK_INTERVAL = 3600.0
"""Seconds between looks at the certificate's end, which is RENEW_DAYS away when it is renewed."""

logger = logging.getLogger(__name__)


class Certificate(Protocol):
    """A certificate and its key, as the TLS port shows it."""

    @property
    def mark(self) -> Hashable:
        """What differs when the certificate is another."""

    def use_in(self, context: SSL.Context) -> None:
        """Show it in handshakes of a context. OpenSSL.SSL.Error when it cannot be used."""

    def expiry(self) -> datetime.datetime | None:
        """When it ends; None where it cannot be read."""


class OwnCertificate:
    """The certificate that the local CA in a folder signs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._addresses: frozenset[str] = frozenset()
        self._pair: Pair | None = None
        self._moved = asyncio.Event()

    @property
    def mark(self) -> Hashable:
        return self._pair.mark if self._pair is not None else None

    def use_in(self, context: SSL.Context) -> None:
        """Show it in handshakes of a context."""
        assert self._pair is not None
        self._pair.use_in(context)

    def expiry(self) -> datetime.datetime | None:
        return self._pair.expiry() if self._pair is not None else None

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
        self._pair = made.load()

    def move(self, addresses: Iterable[str]) -> None:
        """Have the certificate signed for other addresses, soon."""
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
