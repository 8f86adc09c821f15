"""Records of the hub's last own requests, without secrets, for the interfaces."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from addons.requests.caller import CredentialSource, masked

MAX_RECORDS = 200
"""Maximum recorded requests: enough for the probes, reviews and lists of some minutes and every watch of a small
node.
"""


@dataclass(slots=True, eq=False)
class RequestRecord:
    """One of the hub's own requests."""

    method: str
    target: str
    server: str
    credential_source: CredentialSource
    began: float = field(default_factory=time.time)
    """Unix time in seconds, like `ended`."""
    status: int = 0
    """Status of the answer; 0 until a server has answered."""
    failure: str = ""
    """Why no server has answered; "" without a failure."""
    sent: int = 0
    """Bytes of the request body; `received` counts the answer's."""
    received: int = 0
    ended: float = 0.0
    """Unix time in seconds; 0.0 while the request runs."""

    def describe(self) -> dict[str, Any]:
        """Return the record for the debug page."""
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
        self._notify(record)

    def end(self, record: RequestRecord) -> None:
        record.ended = time.time()
        self._notify(record)

    def _notify(self, record: RequestRecord) -> None:
        for listener in self.listeners:
            listener(record)
