"""The states of a reflector."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a reflector; shown in /debug."""

    STOPPED = "stopped"
    LISTING = "listing"
    WATCHING = "watching"
    WAITING = "waiting to try again"
    REFUSED = "refused by the cloud"
    UNSERVED = "no such kind in the cloud"
