"""When a better way that is back is used again: an own one in the place of a borrowed one, the preferred uplink."""

from __future__ import annotations

from collections.abc import Callable

from kube.concurrency.pulse import Pulse, comes_within, first_of

HOLD = 10.0
"""Seconds that a better way must have been up before the node goes it again."""
LONGEST_HOLD = 160.0
"""The same for one that was lost again and again, each time in less than LASTING seconds."""
LASTING = 300.0


class BetterWay:
    """When a way is used again. Pure; all moments are monotonic seconds."""

    def __init__(self) -> None:
        self._hold = HOLD
        self._up_since: float | None = None
        self._used_since = float("-inf")

    def lost(self, now: float) -> None:
        """The way is gone. One that did not last must be up for twice as long the next time."""
        lasted = now - self._used_since
        self._hold = min(2 * self._hold, LONGEST_HOLD) if lasted < LASTING else HOLD
        self._up_since = None

    def seconds_left(self, now: float, *, is_up: bool) -> float | None:
        """Until the way is used again; None while it is gone."""
        if not is_up:
            self._up_since = None
            return None
        if self._up_since is None:
            self._up_since = now
        return max(0.0, self._up_since + self._hold - now)

    def used(self, now: float) -> None:
        """The node goes this way again."""
        self._used_since = now


async def keep_choosing(
    step: Callable[[float], float | None], clock: Callable[[], float], changed: Pulse, probed: Pulse
) -> None:
    """Do what is due until cancelled. `step` says in how many seconds more is, None where only a server's coming or
    going makes it; `changed` beats when one comes or goes, `probed` after each probe."""
    while True:
        moved = (changed.wait(), probed.wait())
        seconds = step(clock())
        await comes_within(seconds, first_of(*moved))
