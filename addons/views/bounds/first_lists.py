"""Lets the first lists of a user with a token wait for each other.

A program begins with a list of each kind at once. A list beyond the quota would be relayed, and its kind would have no
copy in an outage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from weakref import WeakValueDictionary

from addons.views.bounds.quotas import MAX_FILLING, listing
from addons.views.source import Source
from kube.concurrency.notifier import wait_for_any
from kube.reflector.list_watch import ListWatch


class FirstLists:
    """A queue for each user whose first lists have reached the quota."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self._sources = sources
        self._queues = WeakValueDictionary[str, asyncio.Lock]()

    async def wait(self, user: str, list_watch: ListWatch, seconds: float) -> None:
        """Return when the quota allows a user the first list of a list-watch, at the latest after `seconds`; at once if
        it has a source, or if no list is expected to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._queues.setdefault(user, asyncio.Lock()):
                while ahead := self._ahead(user, list_watch):
                    updates = [source.store.next_update() for source in ahead]
                    await wait_for_any(*updates, *(source.reflector.changed.wait() for source in ahead))

    def _ahead(self, user: str, list_watch: ListWatch) -> list[Source]:
        own = [source for source in self._sources if user and source.user == user]
        before = listing(own)
        if len(before) < MAX_FILLING or any(source.list_watch == list_watch for source in own):
            return []
        return [source for source in before if source.is_up() and source.reflector.refusal is None]
