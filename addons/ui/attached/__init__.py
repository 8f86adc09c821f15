"""What a hub without an interface shows to one process that is attached, and holds for it."""

from __future__ import annotations

NO_LEAVE = "this hub lets nobody hold a flow: start it with --allow-hold"
