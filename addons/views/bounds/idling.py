"""Bounds what sources without a client bring over the link, and has them wait for what clients wait for.

A source goes on for a while after its last client, so that the next one finds a history. That is worth the list which
a new source would cost. What its watch brings beyond that is for nobody, and so is its place on the link meanwhile:
the bytes come by the same connection as what the hub relays.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from addons.views.source import Source
from kube.bounds import reached
from kube.concurrency.notifier import comes_within

MIN_WORTH = 64 * 1024
"""Bytes of events that a source may bring without a client, however small its list is."""
QUIET = 0.5
"""Seconds without a byte for a client, after which sources without one read on."""
LOOK = 0.25
"""Seconds between looks whether a source without a client may read on, or can be let go of."""


class Idling:
    """Decides how far the watch of each source reads on."""

    def __init__(
        self,
        drop: Callable[[Source], None],
        grew: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`drop` lets go of a source; `grew` is called with the bytes of events of any source."""
        self.relayed_at: Callable[[], float] = lambda: 0.0
        """When a server last sent something that was asked for now: no event of a source's watch. By `clock`."""
        self._drop = drop
        self._grew = grew
        self._clock = clock
        self._read_at = 0.0
        """When a source with a client last had an event."""

    async def turn(self, source: Source, size: int) -> None:
        """Return when the watch of a source, which has brought so many bytes of events, may bring more."""
        self._grew(size)
        source.unread += size
        while True:
            if source.is_in_use:
                self._read_at = self._clock()
            if source.is_in_use or source.is_needed:
                return
            if source.unread > max(MIN_WORTH, source.worth):
                if source.is_on_disk:
                    reached("events that nobody reads")
                    self._drop(source)
                    return
            elif self._clock() - max(self._read_at, self.relayed_at()) > QUIET:
                return
            await comes_within(LOOK, source.wanted.wait())
