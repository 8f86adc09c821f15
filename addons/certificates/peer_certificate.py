"""The serving certificate of the peer port: the operator's files, or one that the cluster signs for this node.

Each handshake takes the certificate as it is then, so a renewal cuts no stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from addons.certificates.own_certificate import Certificate
from addons.certificates.serving_certificate import Pair, ServingCertificate, now, write_file, write_key
from addons.certificates.signing_request import NotSigned, names_of, node_names, signed_certificate
from kube.concurrency.backoff import Backoff
from kube.errors import StatusError
from kube.http.client import Client, Unreachable

CHECK_INTERVAL = 3600.0
"""Seconds between looks at the certificate's age, and whether it names the node's addresses."""
RETRIES = (10.0, 1800.0)
"""Seconds to the first new request after one that failed, and between requests at most."""

logger = logging.getLogger(__name__)


class GivenCertificate:
    """The operator's files, which each handshake reads anew."""

    def __init__(self, files: ServingCertificate) -> None:
        self._files = files

    @property
    def current(self) -> Certificate | None:
        return self._files

    def want(self, wanted: bool) -> None:
        """The files are there whether anybody needs them or not."""

    async def run(self, _changed: Callable[[], None]) -> None:
        """Nothing is renewed here."""
        await asyncio.Event().wait()


class AskedCertificate:
    """A certificate that the cluster signs, kept in a folder and renewed at two thirds of its life."""

    def __init__(self, node: str, client: Client, folder: Path) -> None:
        """`client` sends with the node's own identity."""
        self._node = node
        self._client = client
        self._certificate, self._key = folder / "peer.crt", folder / "peer.key"
        self._pair: Pair | None = None
        self._wanted = asyncio.Event()

    @property
    def current(self) -> Certificate | None:
        return self._pair if self._pair is not None and self._pair.is_valid else None

    def want(self, wanted: bool) -> None:
        """Say whether the hub needs a certificate; only then does it ask for one."""
        if wanted:
            self._wanted.set()
        else:
            self._wanted.clear()

    async def run(self, changed: Callable[[], None]) -> None:
        """Get a certificate, and renew it in time, until cancelled. `changed` is called when there is a new one."""
        self._pair = await asyncio.to_thread(self._load)
        changed()
        backoff = Backoff(*RETRIES)
        while True:
            await self._wanted.wait()
            try:
                names = await node_names(self._client, self._node)
                if self._is_due(names):
                    await self._renew(names)
                    changed()
                backoff.forget()
                await self._until_due()
            except (NotSigned, StatusError, Unreachable, ValueError) as error:
                delay = backoff.next()
                logger.warning(
                    "no certificate for the peer port yet: %s; next request in %.0f s", error, delay
                )
                await asyncio.sleep(delay)

    def _is_due(self, names: tuple[str, ...]) -> bool:
        pair = self._pair
        return pair is None or now() >= pair.renewal or names_of(pair.certificate) != names

    async def _until_due(self) -> None:
        assert self._pair is not None
        left = (self._pair.renewal - now()).total_seconds()
        await asyncio.sleep(max(0.0, min(CHECK_INTERVAL, left)))

    async def _renew(self, names: tuple[str, ...]) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        logger.info("asking the cluster for a certificate of the peer port, for %s", ", ".join(names))
        pem = await signed_certificate(self._client, self._node, names, key)
        made = x509.load_pem_x509_certificate(pem)
        if made.public_key() != key.public_key():
            raise ValueError("the cluster signed another key")
        self._pair = Pair(made, key)
        logger.info("the peer port has a certificate until %s", made.not_valid_after_utc.isoformat())
        await asyncio.to_thread(self._keep, pem, key)

    def _load(self) -> Pair | None:
        with contextlib.suppress(OSError, ValueError):
            pair = ServingCertificate(self._certificate, self._key).load()
            return pair if pair.is_valid else None
        return None

    def _keep(self, pem: bytes, key: ec.EllipticCurvePrivateKey) -> None:
        """Write both files. After a crash between them they are no pair, and the hub asks anew."""
        try:
            self._key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_key(self._key, key)
            write_file(self._certificate, pem)
        except OSError as error:
            logger.error(
                "the peer port's certificate is not kept (%s): after a restart the hub asks anew", error
            )
