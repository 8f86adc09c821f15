"""The stream of one watch: its events as frames, and what faults do to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto

from kube.errors import expired
from tests.cloud.scriptable.faults import (
    ExpiredWatch,
    LostWatch,
    MalformedFrame,
    Rule,
    ShortWatch,
    StalledWatch,
    TornFrame,
)
from tests.cloud.scriptable.presentation import Presentation
from tests.cloud.scriptable.watch import Event, Watcher

MALFORMED = b'{"type":"ADDED","object":}\n'
"""No JSON; as protobuf, a length that no client takes (0x7b227479 = 2 GB)."""

type Send = Callable[[bytes], Awaitable[None]]


class Ending(Enum):
    """How a stream ended, for the HTTP side to do."""

    CLEAN = auto()
    LOST = auto()


async def stream_watch(
    send: Send, watcher: Watcher, presentation: Presentation, rules: Sequence[Rule]
) -> Ending:
    """Send frames until the watch or a fault ends the stream."""
    faults = [rule.fault for rule in rules]
    if any(isinstance(fault, ExpiredWatch) for fault in faults):
        await send(presentation.event(Event("ERROR", status=expired("too old resource version, on command"))))
        return Ending.CLEAN
    sent = 0
    events = watcher.events()
    try:
        while True:
            if ending := await _between(send, rules, sent):
                return ending
            event = await anext(events, None)
            if event is None:
                return Ending.CLEAN
            frame = presentation.event(event)
            if TornFrame(sent) in faults:
                await send(frame[: len(frame) // 2])
                return Ending.LOST
            await send(frame)
            sent += 1
    finally:
        await events.aclose()


async def _between(send: Send, rules: Sequence[Rule], sent: int) -> Ending | None:
    """Apply the rules for a stream after so many frames, before the next."""
    for rule in rules:
        match rule.fault:
            case ShortWatch(after=after) if after == sent:
                return Ending.CLEAN
            case LostWatch(after=after) if after == sent:
                return Ending.LOST
            case StalledWatch(after=after) if after == sent:
                await rule.lifted.wait()
            case MalformedFrame(after=after) if after == sent:
                await send(MALFORMED)
    return None
