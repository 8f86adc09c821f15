"""Decides what a view sends to a client that comes with a version. `docs/versions.md` explains the rules."""

from __future__ import annotations

from enum import Enum
from typing import Any

from kube.store.history import History


class Resumption(Enum):
    """The ways to bring a client from its version to now."""

    FOLLOW = "follow"
    """The view's own events after the version."""
    REPLAY = "replay"
    """The store's changes after the version, as the view shows them, and then the view's events."""
    CORRECT = "correct"
    """The whole state, and DELETED for what the client may hold besides."""
    EXPIRED = "expired"
    """410: the client's state is unknown."""


def judge(
    since: int,
    history: History[Any],
    *,
    seen: int,
    is_confirmed: bool,
    oldest: int | None,
    elsewhere: int,
    unlike: int,
    is_filtered: bool,
) -> Resumption:
    """Decide how a client resumes from the version `since`.

    `seen` is the version up to which the view has everything; `is_confirmed` says that the cloud had the view's state
    at `since`; `oldest` is the version from which the view's own events go on (None: it has none yet). Up to
    `elsewhere` clients may hold another state than the view ever showed, and up to `unlike` one that inputs made which
    the view has not followed.
    """
    if history.is_in_gap(since) and not is_confirmed:
        return Resumption.EXPIRED
    # Later than that, what a client holds may have come and gone before the store hears of it.
    is_known = since <= seen or is_confirmed
    can_correct = is_known and history.names_all_gone_after(since)
    if since <= elsewhere:
        return Resumption.CORRECT if can_correct else Resumption.EXPIRED
    if oldest is not None and since >= oldest:
        return Resumption.FOLLOW
    if since > unlike and is_known and history.has_all_after(since):
        return Resumption.REPLAY
    return Resumption.CORRECT if is_filtered and can_correct else Resumption.EXPIRED
