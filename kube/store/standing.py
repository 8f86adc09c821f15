"""How much what a store has counts, since the cloud may have another history by now."""

from __future__ import annotations

from enum import Enum


class Standing(Enum):
    """The doubts about a store."""

    GOOD = "good"
    """Nothing does."""
    DOUBTED = "doubted"
    """Another store of this cloud was disproved, and this one is not proved since: nobody is shown it."""
    DISPROVED = "disproved"
    """The cloud was restored from a backup, or replaced. The next list begins another history."""
