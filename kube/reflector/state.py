"""What a reflector is doing."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What a reflector is doing; shown in /debug."""

    STOPPED = "stopped"
    LISTING = "listing"
    WATCHING = "watching"
    WAITING = "waiting to try again"
    REFUSED = "refused by the cloud"
    UNSERVED = "no such kind in the cloud"
