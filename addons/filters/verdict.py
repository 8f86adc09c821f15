"""A filter's decision about one object: kept, changed or dropped, with the reason for metrics and messages."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """The outcome for the object. KEPT promises that not one byte of it differs."""

    KEPT = "kept"
    CHANGED = "changed"
    DROPPED = "dropped"


class Verdict(NamedTuple):
    """A decision. `reason` is one of a filter's few fixed slugs ("same-pool", "no-service"): a metric label, never an
    object's name."""

    outcome: Outcome
    reason: str


def kept(reason: str) -> Verdict:
    return Verdict(Outcome.KEPT, reason)


def changed(reason: str) -> Verdict:
    return Verdict(Outcome.CHANGED, reason)


def dropped(reason: str) -> Verdict:
    return Verdict(Outcome.DROPPED, reason)


Note = Callable[[str, Outcome, str], None]
"""Called with each decision of a filter, for people: the subject ("10.0.0.3", "service default/web"), its outcome, and
the reason with the values that were compared ("node n3 has apps.openyurt.io/nodepool=p2, this node p1")."""


def ignore_note(subject: str, outcome: Outcome, reason: str) -> None:
    """Ignore a note. A filter that gets exactly this function skips the work of explaining."""
