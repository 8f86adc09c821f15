"""Flows of a hub without an interface for one attached process, shown and intercepted."""

from __future__ import annotations

NO_LEAVE = "this hub does not allow held flows: start it with --allow-hold"
