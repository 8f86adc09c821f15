"""Which versions of a source's objects clients may hold from elsewhere than the filtered views of now.

A client may hold a version from a relay, from filters that an edit of the rules took away, or from an earlier process.
The objects that the client has at that version are not those that a filtered view shows (`kube.store.view`, rule 9).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.store.list_pages import Malformed
from kube.store.store import Change, Store

ANY = sys.maxsize
"""Newer than every version."""


class ForeignVersions:
    """The newest such version of one source."""

    def __init__(
        self, store: Store, ask: Callable[[], Awaitable[int]], newest: int, *, was_edited: bool
    ) -> None:
        """Of the clients of a store. `ask` gets the cloud's present version.

        `newest` is the newest version from elsewhere that is known. `was_edited` says that this process has seen an
        edit of the rules: then nobody knows it yet.
        """
        self._store = store
        self._current_version = ask
        self._known = newest
        self._must_ask = was_edited
        self._asking: asyncio.Task[None] | None = None
        store.listen(self)

    @property
    def newest(self) -> int:
        """The newest version that a client may hold from elsewhere; ANY until the cloud has been asked."""
        return ANY if self._must_ask else self._known

    def raise_to(self, version: int) -> None:
        """Note that a client was given this version by a view that is gone."""
        self._known = max(self._known, version)

    def rules_edited(self) -> None:
        """Take every version that the cloud has had for one that a relay may have given."""
        self.close()
        self._must_ask = True

    def learn(self) -> None:
        """Ask the cloud how far it has come, where an edit made that necessary. Nobody waits for the answer."""
        if self._must_ask and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask(), name="versions from before an edit")

    def changed(self, change: Change) -> None:
        """An event makes no version one from elsewhere."""

    def advanced(self) -> None:
        """Nor does a bookmark."""

    def restarted(self) -> None:
        """The cloud was restored from a backup. No version that is later than its present one means anything."""
        self._known = min(self._known, self._store.version)

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    async def _ask(self) -> None:
        try:
            self.raise_to(await self._current_version())
        except (StatusError, Unreachable, Malformed):
            return  # asked again by the next client
        self._must_ask = False
