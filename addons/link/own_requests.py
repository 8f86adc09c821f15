"""Sends the hub's own requests to servers, through one session for each identity, and records them for the
interfaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from addons.link.link import UpstreamManager
from addons.link.probes import PROBE_PATH
from addons.link.request_records import RequestRecord, RequestRecords
from addons.link.servers import PoolKey
from addons.requests.caller import AUTHORIZATION, CredentialSource
from addons.requests.object_read import read_label
from addons.telemetry import metrics
from addons.telemetry.component_traffic import ComponentCounts, ComponentTraffic
from addons.telemetry.labels import HUB
from kube.errors import forbidden, unauthorized
from kube.http.session import Response
from kube.http.transport.request_fields import request_fields
from kube.http.transport.response_sink import MAX_UNREAD
from kube.requests.request_info import parse_request

WATCH_WINDOW = 16 * 1024
"""Bytes of a watch that a server may send before the hub consumes them.

So a source that stops reading bounds its watch by back-pressure.
"""
ROUTE = "relay"
"""Value of the metrics' label `route` for the hub's own requests."""


class OwnRequests:
    """A `kube.http.session.Session` of one identity. It refuses requests with any other identity.

    A URL without scheme and host goes to a usable server of the cloud, chosen in the operator's order.
    """

    def __init__(
        self,
        link: UpstreamManager,
        credential_source: CredentialSource,
        traffic: ComponentTraffic,
        records: RequestRecords,
    ) -> None:
        """`credential_source`: HUB for the node's certificate or token, OWN for the Authorization of each request."""
        self._link = link
        self._credential_source = credential_source
        self._traffic = traffic
        self._records = records

    @asynccontextmanager
    async def open(
        self, method: str, url: str, *, headers: Iterable[tuple[str, str]], body: bytes | None, timeout: float
    ) -> AsyncIterator[Response]:
        """See `kube.http.session.Session.open`. StatusError 401 or 403 if the request has another identity than the
        session.
        """
        given = list(headers)
        authorization = check_identity(self._credential_source, given)
        base, target = _parts(url)
        server = self._link.choose(base)
        if server is None:
            reasons = self._link.cloud.reasons
            raise ConnectionError(
                f"unknown server {base}" if base else f"the cloud cannot be reached ({reasons})"
            )
        timeouts = self._link.state(server).timeouts
        deadline = asyncio.get_running_loop().time() + timeout + timeouts.distance
        key = self._link.pool_key(server, self._credential_source, authorization)
        if bearer := self._link.bearer(key):
            given.append(("Authorization", bearer))
        fields = request_fields(method, server.scheme, server.authority, target, given, body)
        sending = _CountedRequest(
            self._link, key, RequestRecord(method, target, str(server), self._credential_source)
        )
        window = WATCH_WINDOW if sending.is_watch else MAX_UNREAD
        self._records.begin(sending.record)
        self._link.note_request(server)
        try:
            async with self._link.connections.open(
                *(key, fields, body or b"", deadline, sending.received), window=window
            ) as response:
                self._link.answered(key, authorization, response.status)
                (timeouts.measured if target == PROBE_PATH else timeouts.answered)(response.seconds)
                sending.answered(response.status, len(body or b""), self._traffic)
                try:
                    yield response
                finally:
                    if response.error is not None:
                        self._link.suspect(server)
        except OSError as error:
            if not sending.record.status:
                sending.failed(error, self._traffic)
            raise
        finally:
            sending.end()
            self._records.end(sending.record)


class _CountedRequest:
    """Counts one request and its answer, in metrics, traffic and records."""

    def __init__(self, link: UpstreamManager, key: PoolKey, record: RequestRecord) -> None:
        self.record = record
        self._link = link
        self._key = key
        self._info = parse_request(record.method, record.target)
        self.is_watch = self._info.verb == "watch"
        self._count_received = link.received(key.server, is_own_watch=self.is_watch)
        self._counts: ComponentCounts | None = None
        self._is_open_watch = False

    def received(self, size: int) -> None:
        """Count a piece of the answer's body."""
        self._count_received(size)
        self.record.received += size
        if self._counts is not None:
            self._counts.totals.sent += size
            self._counts.totals.fetched += size

    def answered(self, status: int, sent: int, traffic: ComponentTraffic) -> None:
        if sent:
            self._link.sent(self._key.server)(sent)
        self.record.status, self.record.sent = status, sent
        self._begin(status, traffic)

    def failed(self, error: OSError, traffic: ComponentTraffic) -> None:
        """Record that no answer arrived, or none in time."""
        self.record.failure = str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            self._link.state(self._key.server).is_erring = True
        else:
            self._link.suspect(self._key.server)
        self._begin(502, traffic)

    def end(self) -> None:
        if self._counts is not None:
            self._counts.watches -= self._is_open_watch

    def _begin(self, status: int, traffic: ComponentTraffic) -> None:
        info = self._info
        self._is_open_watch = self.is_watch and status == 200
        # A missing answer concerns the link. A 404 is an answer: another hub returns it for a probe, and the cloud for
        # a kind that is not installed. Neither is an error of this hub.
        is_missing = status == 404 and info.method == "GET"
        is_error = self.record.status >= 400 and not is_missing
        read = read_label(info)
        self._counts = traffic.began(HUB, read, is_error=is_error, is_watch=self._is_open_watch)
        self._counts.totals.sent += self.record.received
        self._counts.totals.fetched += self.record.received
        metrics.count_request(HUB, info, ROUTE, status)


def check_identity(credential_source: CredentialSource, headers: Iterable[tuple[str, str]]) -> str:
    """Return the Authorization that a request carries itself: OWN requires one, HUB forbids it.

    StatusError 401 for a caller's request that lost its Authorization, so that it never gets the hub's identity; 403
    for an Authorization in a request of HUB.
    """
    sent = [value for name, value in headers if name.lower() == "authorization"]
    if credential_source is CredentialSource.HUB:
        if sent:
            raise forbidden("a request with the hub's identity must not carry other credentials")
        return ""
    if (
        credential_source is not CredentialSource.OWN
        or len(sent) != 1
        or not AUTHORIZATION.fullmatch(sent[0])
    ):
        raise unauthorized("Unauthorized")
    return sent[0]


def _parts(url: str) -> tuple[str, str]:
    """Split a URL into the server's URL ("" if it has none) and the target."""
    if url.startswith("/"):
        return "", url
    parts = urlsplit(url)
    base = f"{parts.scheme}://{parts.netloc}"
    return base, url[len(base) :] or "/"
