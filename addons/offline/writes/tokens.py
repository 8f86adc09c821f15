"""Tokens of service accounts: the hub gives a pod the last token that the cloud made for it, while it is valid."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime

from addons.offline.cached_response import CachedResponse
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_request import OfflineRequest
from addons.requests.answers import HEADERS, Answer
from kube.errors import unavailable
from kube.wire.encoding import Encoding
from kube.wire.fields import Fields

MIN_VALIDITY = 10.0
"""Seconds that a token must still be valid for the hub to hand it out."""


class Tokens:
    """Keeps answers to token requests. A request names its pod in its body, so the answer's name covers the body."""

    def __init__(self, answers: CachedResponses, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives wall time in seconds: tokens expire by it."""
        self._answers = answers
        self._clock = clock

    def keep(self, identity: str, request: OfflineRequest, headers: Mapping[str, str], body: bytes) -> None:
        self._answers.keep(request.key(identity), headers, body)

    async def answer(self, identity: str, request: OfflineRequest) -> Answer:
        """The last token that the cloud gave for the same request; StatusError 503 where it is no longer valid."""
        answer = await self._answers.get(request.key(identity))
        if answer is None or self._expires(answer) < self._clock() + MIN_VALIDITY:
            raise unavailable(
                "the cloud cannot be reached, and the hub has no valid token of this service account"
            )
        return Answer(answer.body, {**answer.headers, **HEADERS}, 201)

    def _expires(self, answer: CachedResponse) -> float:
        """When the token in an answer expires, in seconds since the epoch; 0 where the answer cannot be read."""
        try:
            document = answer.single()
            return _time(document.codec.encoding, document.decode().fields.child("status"))
        except ValueError:
            return 0.0


def _time(encoding: Encoding, status: Fields) -> float:
    if encoding is Encoding.PROTOBUF:
        return float(status.child("expirationTimestamp").number("seconds"))
    return datetime.fromisoformat(status.text("expirationTimestamp")).timestamp()
