"""The hub's own events and commands among those that mitmproxy's layers handle and give."""

from __future__ import annotations

from dataclasses import dataclass

from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http._base import HttpEvent


@dataclass(slots=True)
class BodyTime(events.Event):
    """Tells the streams of requests, some of whose bodies have not come in whole, what time it is."""

    now: float
    """By the monotonic clock."""


@dataclass
class HeldBody(HttpEvent):
    """Asks the server's side to play a body that the hub holds into its stream, as the client reads."""

    data: bytes


@dataclass(slots=True)
class UnreadGrew(events.Event):
    """Says that this client is the one that leaves most unread, of those that leave too much."""


class NextTurn(commands.RequestWakeup):
    """Asks for a Wakeup when the client's next turn is."""

    def __init__(self) -> None:
        super().__init__(0)
