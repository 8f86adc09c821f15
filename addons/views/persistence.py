"""Defines how a source is stored on disk (`addons.offline` implements it), with checkpoints of its views.

A checkpoint must be true for as long as it is on disk, so the disk drops it before an input of the filters changes what
clients see.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple, Protocol

from addons.filters.filter import Filter
from addons.rules.table import Rules
from addons.telemetry.background import background
from kube.disk.copy_rows import Meta
from kube.errors import StatusError
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.store.history import Past
from kube.store.projection import InputKey, Projection
from kube.store.resumption import Checkpoint
from kube.store.store import Store


class Checkpoints(NamedTuple):
    """The states that the views of a source have shown, by the digest of the rules and the names of the filters."""

    rules: str = ""
    of_filters: Mapping[str, Checkpoint] = {}

    def described(self) -> Meta:
        """Return the part of a copy's metadata that `checkpoints_of` reads."""
        shown = {
            name: [one.version, f"{one.digest:x}", one.last_incompatible, *sorted(one.hidden)]
            for name, one in self.of_filters.items()
        }
        return {"rules": self.rules, "checkpoints": shown}


class SourceCopy(Protocol):
    """A source's copy on disk."""

    former: Checkpoints
    """The checkpoints of an earlier process."""
    checkpoints: Callable[[], Checkpoints]
    """Returns the current checkpoints, for each batch."""

    @property
    def has_checkpoints(self) -> bool:
        """Whether the disk may hold checkpoints of this source."""

    def write_checkpoints(self) -> None:
        """Write the current checkpoints."""

    async def withdraw(self) -> None:
        """Write the current checkpoints at once; return once they are on disk, or after a time-out."""

    is_followed: bool
    """Whether no hub was online without the source since it last followed the cloud."""

    @property
    def is_written(self) -> bool:
        """Whether all changes of the source are on disk."""

    @property
    def is_starting(self) -> bool:
        """Whether clients may not see the source's store yet."""

    def start(self, reflector: Reflector) -> Coroutine[None, None, None]:
        """Load the copy, then run the reflector until cancelled."""

    def use(self) -> None:
        """Record that a client uses the source."""

    def follow(self, *, is_followed: bool) -> None:
        """Record that the source follows the cloud, or ends before the hub does."""

    def refused(self, refusal: StatusError) -> None:
        """Delete the copy of objects that the cloud no longer lets the hub read."""

    def discard(self) -> None:
        """Delete the copy, because the hub's bounds close the source."""

    def close(self) -> None:
        """Write the remaining changes, and stop following the store."""


class SourceCopies(Protocol):
    """The copies of all sources on disk."""

    def copy(self, identity: str, list_watch: ListWatch, store: Store) -> SourceCopy:
        """Return the copy of a source's store. It follows the store from now on."""

    def disprove_unused(self) -> Iterable[tuple[ListWatch, int]]:
        """Invalidate the copies without a running source, because the cloud was restored from a backup.

        Return their resources and versions.
        """

    def list_watches(self, identity: str) -> Mapping[ListWatch, int]:
        """Return an identity's list-watches with a copy on disk, with their versions."""


def past_of(meta: Meta) -> Past | None:
    """Return the last changes before the copy was written; None if they are unreadable."""
    with contextlib.suppress(KeyError, TypeError, ValueError):
        since, changes = meta["past"]
        past = Past(int(since), tuple((int(at), (str(key[0]), str(key[1]))) for at, key in changes))
        return past if past.since <= meta["version"] else None
    return None


def checkpoints_of(meta: Meta) -> Checkpoints:
    """Return the checkpoints of a copy; empty if they are unreadable."""
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
        shown = {
            str(name): Checkpoint(
                int(version), int(digest, 16), int(last_incompatible), frozenset(map(str, hidden))
            )
            for name, (version, digest, last_incompatible, *hidden) in meta["checkpoints"].items()
        }
        return Checkpoints(str(meta["rules"]), shown)
    return Checkpoints()


class CheckpointStore:
    """The checkpoints of one source."""

    def __init__(
        self,
        projections: Mapping[tuple[Filter, ...], Projection],
        rules: Callable[[], Rules],
        elsewhere: Callable[[], int],
    ) -> None:
        """`elsewhere` returns the newest version that clients may have from outside this process's views."""
        self._projections = projections
        self._rules = rules
        self._elsewhere = elsewhere
        self._copy: SourceCopy | None = None
        self._withdrawals = 0

    def write_checkpoints_with(self, copy: SourceCopy) -> None:
        """Write the current checkpoints with each batch of a copy."""
        self._copy, copy.checkpoints = copy, self._now

    def former(self, filters: tuple[Filter, ...]) -> Checkpoint | None:
        """Return the previous process's checkpoint for these filters and the same rules."""
        if self._copy is None or self._copy.former.rules != self._rules().digest:
            return None
        return self._copy.former.of_filters.get(_names(filters))

    def write_missing(self) -> None:
        """Write the checkpoints if the disk has none."""
        if self._copy is not None and not self._copy.has_checkpoints and self._now().of_filters:
            self._copy.write_checkpoints()

    def rewrite(self) -> None:
        """Rewrite the checkpoints, because those on disk are outdated."""
        if self._copy is not None and self._copy.has_checkpoints:
            self._copy.write_checkpoints()

    def rules_edited(self) -> None:
        """Drop the checkpoints of other rules."""
        if self._copy is None or self._copy.former.rules == self._rules().digest:
            return
        self._copy.former = Checkpoints()
        for projection in self._projections.values():
            projection.former = None
        self.rewrite()

    def forget(self) -> None:
        """Stop writing checkpoints: the source no longer follows its filters' inputs."""
        self._withdrawals += 1
        self.rewrite()

    def may_be_on_disk(self, inputs: Collection[InputKey]) -> bool:
        """Whether the disk may have checkpoints of views that these inputs are about to change."""
        # While one change waits for the disk, the next one has to, too.
        may_be_written = self._copy is not None and (self._copy.has_checkpoints or self._withdrawals > 0)
        return may_be_written and any(made.is_shown_by(inputs) for made in self._projections.values())

    @asynccontextmanager
    async def withdrawn(self) -> AsyncIterator[None]:
        """Remove the checkpoints from disk while an input changes."""
        self._withdrawals += 1
        try:
            if self._copy is not None:
                await self._copy.withdraw()
            yield
        finally:
            self._withdrawals -= 1
            self.write_missing()

    def _now(self) -> Checkpoints:
        if self._withdrawals:
            return Checkpoints()
        elsewhere = self._elsewhere()
        shown = {
            _names(filters): checkpoint
            for filters, projection in self._projections.items()
            if filters and (checkpoint := projection.checkpoint(elsewhere)) is not None
        }
        return Checkpoints(self._rules().digest, shown)


class Withdrawals:
    """Changes of inputs that wait until the disk has dropped the checkpoints."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, checkpoints: Sequence[CheckpointStore], change: Callable[[], None]) -> None:
        """Apply `change` once the disk has dropped these checkpoints; at once if there are none."""
        if not checkpoints:
            change()
            return
        task = background(_withdraw(checkpoints, change), "inputs of filters")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


async def _withdraw(checkpoints: Sequence[CheckpointStore], change: Callable[[], None]) -> None:
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(each.withdrawn()) for each in checkpoints))
        change()


def _names(filters: tuple[Filter, ...]) -> str:
    return ",".join(one.name for one in filters)
