"""Estimates the timeouts for a server from its round trips, smoothed as in RFC 6298, section 2. Pure."""

from __future__ import annotations

from dataclasses import dataclass

PROBE_INTERVAL = 2.5
"""Seconds of silence after which the hub probes a server that is up."""
PROBE_AFTER_SILENCE = 1.0
"""Seconds of silence after which the hub probes a server that owes an answer. A lost packet is noticed after this and
PROBE_TIMEOUT.
"""
PROBE_TIMEOUT = 3.4
"""Seconds of silence after a probe, after which the server counts as down.

With PROBE_INTERVAL the hub notices a black hole within 6 s, and a link whose round trip suddenly rises to 3 s stays up.
"""
OPENING = 10.0
"""Seconds for each step of opening a connection (TCP, TLS): like kubelet's setting of client-go's dialer."""
LONGEST = 30.0
"""Maximum seconds of a timeout extended for a slow link. A server with longer round trips counts as down."""
SHORTEST = 0.5
"""Minimum seconds of an interval or timeout that an operator may set. The hub pauses 0.25 s between two probes."""
_GAIN, _VARIANCE_GAIN, _VARIANCES = 1 / 8, 1 / 4, 4
"""Constants alpha, beta and K of RFC 6298."""


def parse_duration(name: str, text: str) -> float:
    """Parse an interval or timeout in seconds. ValueError, with the option's name, if it is out of range."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SHORTEST <= seconds <= LONGEST:
        raise ValueError(f"{name} is {SHORTEST} to {LONGEST:g} seconds, not {text!r}")
    return seconds


@dataclass(slots=True)
class TimeoutEstimator:
    """The round trips to one server, and the timeouts derived from them."""

    interval: float = PROBE_INTERVAL
    timeout: float = PROBE_TIMEOUT
    """Seconds of silence after a probe. The defaults are PROBE_INTERVAL and PROBE_TIMEOUT."""
    round_trip: float | None = None
    """Smoothed round trip in seconds; None before the first measurement."""
    _variance: float = 0.0

    def measured(self, seconds: float) -> None:
        """Add the round trip of a handshake, or of a request that the server answers without delay."""
        if self.round_trip is None:
            self.round_trip, self._variance = seconds, seconds / 2
            return
        error = abs(seconds - self.round_trip)
        if seconds < self.round_trip:
            # An early answer must not increase the variance, as RFC 6298 would after a slow handshake.
            error = min(error, self._variance)
        self._variance += _VARIANCE_GAIN * (error - self._variance)
        self.round_trip += _GAIN * (seconds - self.round_trip)

    def answered(self, seconds: float) -> None:
        """Use any answer's duration, which includes the server's work, as an upper bound of the round trip."""
        if self.round_trip is not None and seconds < self.round_trip:
            self.measured(seconds)

    @property
    def patience(self) -> float:
        """Seconds of silence after which a server that owes an answer is probed."""
        return max(PROBE_AFTER_SILENCE, 2 * (self.round_trip or 0.0))

    @property
    def silence(self) -> float:
        """Seconds of silence after which a server that owes an answer counts as down.

        A retransmitted segment takes a round trip more. Together with the interval between probes this is at least
        three round trips.
        """
        known = self.round_trip or 0.0
        slack = max(2 * known - self.interval, _VARIANCES * self._variance)
        return max(self.timeout, min(known + slack, LONGEST))

    @property
    def first_silence(self) -> float:
        """The same limit for a server that is not known to be reachable, because its state is unknown or down."""
        return max(self.interval + self.timeout, self.silence)

    @property
    def opening(self) -> float:
        """Seconds for each step of opening a connection: TCP, a proxy, and TLS."""
        return max(OPENING, min(3 * self.silence, LONGEST))

    @property
    def distance(self) -> float:
        """Seconds that the link adds to a request: its own round trip, after those of TCP and TLS."""
        return min(3 * (self.round_trip or 0.0), LONGEST)
