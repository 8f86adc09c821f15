"""Tokens of service accounts: the last one that the cloud gave for the same pod, as long as it is valid."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime

from aiohttp import web

from addons.offline.cached_responses import CachedResponse, CachedResponses
from addons.offline.offline_request import HEADERS, OfflineRequest
from kube.errors import unavailable
from kube.wire.encoding import Encoding
from kube.wire.fields import Fields

LEFT = 10.0
"""Seconds that a token must be valid yet to be worth handing out."""


class Tokens:
    """Copies of answers to token requests. A request names its pod in its body, so that is part of the name."""

    def __init__(self, answers: CachedResponses, clock: Callable[[], float] = time.time) -> None:
        """`clock` is the wall clock, in seconds: tokens expire by it."""
        self._answers = answers
        self._clock = clock

    def keep(self, identity: str, asked: OfflineRequest, headers: Mapping[str, str], body: bytes) -> None:
        self._answers.keep(asked.name(identity), headers, body)

    async def take(self, identity: str, asked: OfflineRequest) -> web.Response:
        """The last token given for the same request; StatusError 503 where none is valid."""
        kept = await self._answers.get(asked.name(identity))
        if kept is None or self._expires(kept) < self._clock() + LEFT:
            raise unavailable(
                "the cloud cannot be reached, and the node has no valid token of this service account"
            )
        return web.Response(status=201, body=kept.body, headers={**kept.headers, **HEADERS})

    def _expires(self, kept: CachedResponse) -> float:
        """Seconds since the epoch; 0 where the answer cannot be read."""
        try:
            found = kept.single()
            return _time(found.codec.encoding, found.decode().fields.child("status"))
        except ValueError:
            return 0.0


def _time(encoding: Encoding, status: Fields) -> float:
    if encoding is Encoding.PROTOBUF:
        return float(status.child("expirationTimestamp").number("seconds"))
    return datetime.fromisoformat(status.text("expirationTimestamp")).timestamp()
