"""Decides whether a watch requests bookmarks, which come once a minute.

For a few objects a new list costs less than an hour of bookmarks, so the reflector lists these again when their
resourceVersion has expired.
"""

from __future__ import annotations

from kube.reflector.history_verifier import FEW_OBJECTS, HistoryVerifier
from kube.reflector.upstream import Upstream
from kube.store.store import Store

SMALL_STORE = 8 * 1024
"""The most bytes of a store whose watches request no bookmarks: about as many as an hour of bookmarks."""


class Bookmarks:
    """Decides for each watch of one store whether it requests bookmarks.

    A watch of a small store requests them after each break, and when a client has a newer version than the store. Once
    a bookmark has brought the store past its clients' versions, the next watch requests none.
    """

    def __init__(self, store: Store, verifier: HistoryVerifier) -> None:
        self._store, self._verifier = store, verifier
        self._is_expected = True
        """True until a bookmark arrives after a break."""
        self._expires = False
        """True if a watch without bookmarks could not resume, because many writes of this kind made its version
        expire."""
        self._are_asked = True

    def decide(self, upstream: Upstream | None) -> bool:
        """Return whether the watch that begins now must request bookmarks."""
        self._are_asked = self._are_needed(upstream)
        return self._are_asked

    def are_needless(self, upstream: Upstream | None) -> bool:
        """Return whether the current watch requested bookmarks and no longer needs them."""
        return self._are_asked and not self._are_needed(upstream)

    def expect(self) -> bool:
        """Note that a bookmark is needed. Return whether the current watch has requested them."""
        self._is_expected = True
        return self._are_asked

    def note_bookmark(self) -> None:
        """Note that the store has taken a bookmark."""
        self._is_expected = False

    def note_expired(self) -> None:
        """Note that the cloud no longer has the version at which a watch was to begin."""
        self._expires = self._expires or not self._are_asked

    def _are_needed(self, upstream: Upstream | None) -> bool:
        store = self._store
        # Hubs of a pool compare versions, and their bookmarks report history gaps and local changes.
        is_shared = upstream is not None and upstream.is_shared
        is_small = len(store) <= FEW_OBJECTS and store.size <= SMALL_STORE
        is_behind = store.newest_given > store.version or store.version <= store.former_version
        is_behind |= not self._verifier.is_verified
        return self._is_expected or self._expires or is_behind or is_shared or not is_small
