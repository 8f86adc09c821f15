"""The time-outs towards a server, as its round trips make them: smoothed by RFC 6298, section 2. Pure."""

from __future__ import annotations

from dataclasses import dataclass

PROBE_INTERVAL = 2.5
"""Seconds of silence of a server that is up, until the hub probes it."""
UNANSWERED = 1.0
"""Seconds of silence of a server that owes an answer, until the hub probes it: a packet lost in a black hole waits for
this and PROBE_TIMEOUT."""
PROBE_TIMEOUT = 3.4
"""Seconds of silence, from the probe on, after which the server counts as down.

With PROBE_INTERVAL the hub notices a black hole within 6 s, and a link whose round trip rises to 3 s at once stays up.
"""
OPENING = 10.0
"""Seconds for each step of opening a connection, as kubelet sets client-go's dialer: TCP, and TLS."""
LONGEST = 30.0
"""The most seconds of a time-out that a slow link makes longer. A link with longer round trips counts as gone."""
SHORTEST = 0.5
"""Seconds: the shortest interval or time-out that an operator may want. The hub pauses 0.25 between two probes."""
_GAIN, _VARIANCE_GAIN, _VARIANCES = 1 / 8, 1 / 4, 4
"""RFC 6298's alpha, beta and K."""


def parse_duration(name: str, text: str) -> float:
    """Seconds, with a fraction, of an interval or a time-out; ValueError with the option's name otherwise."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SHORTEST <= seconds <= LONGEST:
        raise ValueError(f"{name} is {SHORTEST} to {LONGEST:g} seconds, not {text!r}")
    return seconds


@dataclass(slots=True)
class TimeoutEstimator:
    """The round trips to one server, and how long the hub waits for it."""

    interval: float = PROBE_INTERVAL
    timeout: float = PROBE_TIMEOUT
    """Seconds, derived from PROBE_INTERVAL and PROBE_TIMEOUT."""
    round_trip: float | None = None
    """Seconds, smoothed; None until one was measured."""
    _variance: float = 0.0

    def measured(self, seconds: float) -> None:
        """Add the round trip of a handshake, or of a request that the server answers at once."""
        if self.round_trip is None:
            self.round_trip, self._variance = seconds, seconds / 2
            return
        error = abs(seconds - self.round_trip)
        if seconds < self.round_trip:
            # An answer that comes early makes none late, as RFC 6298's variance would have it after a slow handshake.
            error = min(error, self._variance)
        self._variance += _VARIANCE_GAIN * (error - self._variance)
        self.round_trip += _GAIN * (seconds - self.round_trip)

    def answered(self, seconds: float) -> None:
        """Take the time of any answer, which the server's own work is part of: a round trip takes no longer."""
        if self.round_trip is not None and seconds < self.round_trip:
            self.measured(seconds)

    @property
    def patience(self) -> float:
        """Seconds of silence of a server that owes an answer, until it is probed."""
        return max(UNANSWERED, 2 * (self.round_trip or 0.0))

    @property
    def silence(self) -> float:
        """Seconds of silence of a server that owes an answer, after which it counts as gone.

        A lost segment comes a round trip later. With the interval this is at least three round trips.
        """
        known = self.round_trip or 0.0
        slack = max(2 * known - self.interval, _VARIANCES * self._variance)
        return max(self.timeout, min(known + slack, LONGEST))

    @property
    def first_silence(self) -> float:
        """The same for a server to which no link is known to lead: unknown, or down."""
        return max(self.interval + self.timeout, self.silence)

    @property
    def opening(self) -> float:
        """Seconds for each step of opening a connection: TCP, a proxy, and TLS."""
        return max(OPENING, min(3 * self.silence, LONGEST))

    @property
    def distance(self) -> float:
        """Seconds that the link adds to a request: its own round trip, and those of TCP and TLS before it."""
        return min(3 * (self.round_trip or 0.0), LONGEST)
