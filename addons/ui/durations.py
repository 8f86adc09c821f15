"""Times as people read them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """`4s`, `3m20s`, `2h5m`: as kubectl tells an age."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
