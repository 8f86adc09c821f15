"""Paces and bounds the watches of sources without a client, so that clients' requests come first on the link.

A source continues for a while after its last client, so that the next client finds a history. That is worth as many
bytes as the list of a new source costs. When its watch has received more, the source is closed, because the watch takes
bandwidth from relayed requests on the same connection.
"""

from __future__ import annotations

from collections.abc import Callable

from addons.views.source import Source
from kube.bounds import reached
from kube.concurrency.notifier import completes_within

MIN_WORTH = 64 * 1024
"""The least bytes of events that a source may receive without a client, however small its list is."""
QUIET_TIME = 0.5
"""Seconds without a byte for any client, after which sources without a client read their watches again."""
CHECK_INTERVAL = 0.25
"""Seconds between checks whether a source without a client may read its watch, or can be closed."""


class Idling:
    """Paces the watch of each source without a client."""

    def __init__(
        self,
        drop: Callable[[Source], None],
        grew: Callable[[int], None],
        clock: Callable[[], float],
    ) -> None:
        """`drop` closes a source; `grew` receives the number of bytes of each source's new events."""
        self.relayed_at: Callable[[], float] = lambda: 0.0
        """Returns when a server last sent bytes of an answer that a client waits for, by `clock`. Events of sources do
        not count."""
        self._drop = drop
        self._grew = grew
        self._clock = clock
        self._read_at = 0.0
        """When a source with a client last received an event."""

    async def pace(self, source: Source, size: int) -> None:
        """Return when a source may read more of its watch, which has just received `size` bytes of events."""
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
            elif self._clock() - max(self._read_at, self.relayed_at()) > QUIET_TIME:
                return
            await completes_within(CHECK_INTERVAL, source.wanted.wait())
