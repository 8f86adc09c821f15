"""How far a store's objects are trusted: the cloud may have another history by now."""

from __future__ import annotations

from enum import Enum


class Standing(Enum):
    """How far a store's objects are trusted."""

    GOOD = "good"
    """Nothing does."""
    DOUBTED = "doubted"
    """Another store of this cloud was disproved, and this one is not verified yet: no client sees it."""
    DISPROVED = "disproved"
    """The cloud was restored from a backup, or replaced. The next list begins another history."""
