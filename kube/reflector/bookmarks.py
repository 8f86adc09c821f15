"""Decides whether a watch asks for bookmarks, which come once a minute. A list of a few objects costs less than an
hour of bookmarks, so a reflector rather lists those objects again when their version has become too old.
"""

from __future__ import annotations

from kube.reflector.history_verifier import FEW, HistoryVerifier
from kube.reflector.upstream import Upstream
from kube.store.store import Store

SMALL = 8 * 1024
"""Watches of stores of up to so many bytes ask for no bookmarks: an hour of bookmarks has as many."""


class Bookmarks:
    """Decides for each watch of one store whether it asks for bookmarks.

    A watch of a small store asks for them after each break, and when a client gets a newer version than the store's.
    Once a bookmark has brought the store past its clients' versions, the store has all events after each of these, and
    the next watch asks for none.
    """

    def __init__(self, store: Store, verifier: HistoryVerifier) -> None:
        self._store, self._verifier = store, verifier
        self._is_expected = True
        """None has come since the last break."""
        self._expires = False
        """A watch without them could not be resumed: its version had expired by many writes of this kind."""
        self._are_asked = True

    def ask(self, upstream: Upstream | None) -> bool:
        """Whether the watch that begins now asks for them."""
        self._are_asked = self._are_needed(upstream)
        return self._are_asked

    def are_needless(self, upstream: Upstream | None) -> bool:
        """Whether the present watch asked for them and may go on without."""
        return self._are_asked and not self._are_needed(upstream)

    def expect(self) -> bool:
        """Note that a bookmark is needed. Returns whether the present watch already asks for bookmarks."""
        self._is_expected = True
        return self._are_asked

    def came(self) -> None:
        """The store has taken a bookmark."""
        self._is_expected = False

    def note_expired(self) -> None:
        """The cloud no longer has the version that a watch was to begin at."""
        self._expires = self._expires or not self._are_asked

    def _are_needed(self, upstream: Upstream | None) -> bool:
        store = self._store
        # Hubs of a pool compare versions, and their bookmarks report gaps and changes by the node itself.
        is_shared = upstream is not None and upstream.is_shared
        is_small = len(store) <= FEW and store.size <= SMALL
        is_behind = store.newest_given > store.version or store.version <= store.former_version
        is_behind |= not self._verifier.is_verified
        return self._is_expected or self._expires or is_behind or is_shared or not is_small
