"""Decides which events a view sends to a client that resumes from a version. `docs/versions.md` explains the rules.

Filters depend on inputs, which may have changed while the hub was down. So the disk has a checkpoint together with the
store. If the next process computes the same digest from that store and its own inputs, a client of the earlier process
holds the view's state, except for later changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from enum import Enum
from typing import Any, NamedTuple

from kube.requests.continue_tokens import key_text
from kube.store.history import History
from kube.store.store import Item, Key

DIGEST = 16
"""Bytes of a digest."""
NAME_DIGEST = 8
"""Bytes of the digest of a hidden object's name."""
MAX_HIDDEN = 128
"""The most hidden objects that a checkpoint names, as a busy source writes it with each batch. If there are more, it
names none."""


class Resumption(Enum):
    """How a client is brought from its version to the current state."""

    FOLLOW = "follow"
    """Send the view's own events after the version."""
    REPLAY = "replay"
    """Send the store's changes after the version, as the view shows them, and then the view's events."""
    REPEAT = "repeat"
    """Send the current state of objects changed after the version, and DELETED for those that the view hides."""
    CORRECT = "correct"
    """Send the complete state, and DELETED for other objects that the client may hold."""
    EXPIRED = "expired"
    """Answer 410: the client's state is unknown."""


class ClientState(NamedTuple):
    """Facts about a client that resumes from a version."""

    version: int
    is_confirmed: bool = False
    """True if the cloud has confirmed that it had the view's state at this version."""
    is_elsewhere: bool = False
    """True if the client may hold a state that the view never showed."""
    checkpoint_version: int = 0
    """The version up to which the client holds the view's state, according to an earlier process's checkpoint; 0 if
    unknown."""


class ShownState(NamedTuple):
    """Facts about a view and its projection."""

    history: History[Any]
    seen: int
    """The version up to which the view has all events."""
    oldest: int | None
    """The version from which the view's own events are complete; None if it has none yet."""
    last_incompatible: int
    """Up to this version, clients may hold a state from inputs whose changes the view has not followed."""
    is_filtered: bool


def judge(client: ClientState, shown: ShownState) -> Resumption:
    """Decide how a client resumes."""
    since, history = client.version, shown.history
    if history.is_in_gap(since) and not client.is_confirmed:
        return Resumption.EXPIRED
    # At a later version, the client's object may have come and gone before the store sees it.
    is_known = since <= shown.seen or client.is_confirmed
    can_correct = is_known and history.names_all_gone_after(since)
    is_repeatable = since > shown.last_incompatible and is_known
    if client.is_elsewhere:
        held = client.checkpoint_version
        if held and is_repeatable and history.names_all_changed_after(min(since, held)):
            return Resumption.REPEAT
        return Resumption.CORRECT if can_correct else Resumption.EXPIRED
    if shown.oldest is not None and since >= shown.oldest:
        return Resumption.FOLLOW
    if is_repeatable and history.has_all_after(since):
        return Resumption.REPLAY
    if is_repeatable and history.names_all_changed_after(since):
        return Resumption.REPEAT
    # A list of an unfiltered view may have a version from before a change of the rules, and a watch may resume from
    # it.
    can_correct &= shown.is_filtered or since <= shown.last_incompatible
    return Resumption.CORRECT if can_correct else Resumption.EXPIRED


class Checkpoint(NamedTuple):
    """A digest of the state that a projection showed of a store at `version`."""

    version: int
    digest: int
    last_incompatible: int = 0
    """The newest version at which clients may hold a state that the projection did not show."""
    hidden: Collection[str] = ()
    """The digests of the names of all hidden objects, if there are at most MAX_HIDDEN; else empty."""

    def has_hidden(self, key: Key) -> bool:
        """True if filters hid this object, according to the checkpoint."""
        return bool(self.hidden) and name_digest(key) in self.hidden


def name_digest(key: Key) -> str:
    """The digest of an object's name, which represents it among the hidden objects on disk."""
    text = key_text(key).encode(errors="surrogatepass")
    return hashlib.blake2b(text, digest_size=NAME_DIGEST).hexdigest()


def digest_of(key: Key, shown: Item | None) -> int:
    """The digest of one object that filters changed, or hid (None). XOR combines several."""
    text = key_text(key).encode(errors="surrogatepass")
    made = hashlib.blake2b(text, digest_size=DIGEST)
    made.update(b"\0" if shown is None else b"\1" + shown.raw)
    return int.from_bytes(made.digest())


class Overrides(dict[Key, Item | None]):
    """The objects that filters changed or hid (None), and their combined digest."""

    def __init__(self) -> None:
        self.digest = 0
        self._hidden: set[Key] = set()

    @property
    def hidden(self) -> Collection[str]:
        """The digests of the names of the hidden objects, for a checkpoint."""
        return frozenset(map(name_digest, self._hidden)) if len(self._hidden) <= MAX_HIDDEN else ()

    def put(self, key: Key, shown: Item | None) -> None:
        self.forget(key)
        self[key] = shown
        if shown is None:
            self._hidden.add(key)
        self.digest ^= digest_of(key, shown)

    def forget(self, key: Key) -> None:
        if key in self:
            self._hidden.discard(key)
            self.digest ^= digest_of(key, self.pop(key))
