"""What mitmproxy uses now under a name that it does not export."""

from __future__ import annotations

from typing import Any


def patched(place: object, name: str) -> Any:
    """The value of the name, whatever was put there."""
    return getattr(place, name)
