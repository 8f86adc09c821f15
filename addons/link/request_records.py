"""The hub's own requests, for people: the last ones, without anything secret."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from addons.requests.caller import CredentialSource, masked

MAX_RECORDS = 200
"""Requests that are remembered: the probes, reviews and lists of some minutes, and every watch of a small node."""


@dataclass(slots=True, eq=False)
class RequestRecord:
    """One request."""

    method: str
    target: str
    server: str
    credential_source: CredentialSource
    began: float = field(default_factory=time.time)
    """In Unix seconds, as `ended`."""
    status: int = 0
    """0 until a server has answered."""
    failure: str = ""
    """Why none has."""
    sent: int = 0
    """Bytes of the body, as `received`."""
    received: int = 0
    ended: float = 0.0
    """0.0 while the request runs."""

    def describe(self) -> dict[str, Any]:
        """For the debug page."""
        ended = self.ended or time.time()
        return {
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.began)),
            "method": self.method,
            "target": masked(self.target.encode()).decode(),
            "server": self.server,
            "identity": self.credential_source,
            "status": self.status,
            **({"failure": self.failure} if self.failure else {}),
            "sentBytes": self.sent,
            "receivedBytes": self.received,
            "seconds": round(ended - self.began, 3),
            "isUnderWay": not self.ended,
        }


class RequestRecords:
    """The last MAX_RECORDS requests."""

    def __init__(self) -> None:
        self.last: deque[RequestRecord] = deque(maxlen=MAX_RECORDS)
        self.listeners: list[Callable[[RequestRecord], None]] = []
        """Called when a request begins, and when it has ended."""

    def begin(self, record: RequestRecord) -> None:
        self.last.append(record)
        self._tell(record)

    def end(self, record: RequestRecord) -> None:
        record.ended = time.time()
        self._tell(record)

    def _tell(self, record: RequestRecord) -> None:
        for listener in self.listeners:
            listener(record)
