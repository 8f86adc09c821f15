"""Sends the flows of a hub without an interface to one attached process, which may intercept them."""

from __future__ import annotations

HOLD_NOT_ALLOWED = "this hub does not allow held flows: start it with --allow-hold"
