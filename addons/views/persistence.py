"""The interface of a source to a disk. `addons.offline` keeps the copies; this room knows only their shape."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import Protocol

from kube.errors import StatusError
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.store.store import Store


class SourceCopy(Protocol):
    """One source on disk."""

    @property
    def is_written(self) -> bool:
        """Whether the disk has all of the source."""

    @property
    def is_starting(self) -> bool:
        """Whether the source may not show its store yet."""

    def start(self, reflector: Reflector) -> Coroutine[None, None, None]:
        """Begin from the copy: read it, then run the reflector until cancelled."""

    def use(self) -> None:
        """Note that a client uses the source."""

    def refused(self, refusal: StatusError) -> None:
        """Drop what the cloud no longer shows."""

    def close(self) -> None:
        """Write what is left, and follow the store no longer."""


class SourceCopies(Protocol):
    """All sources on disk."""

    def copy(self, identity: str, list_watch: ListWatch, store: Store) -> SourceCopy:
        """The copy of a source's store, which follows the store from now on."""

    def disprove_unused(self) -> Iterable[tuple[ListWatch, int]]:
        """Show the copies whose sources do not run to nobody: the cloud was restored from a backup.

        What they are of, and their versions.
        """

    def list_watches(self, identity: str) -> Mapping[ListWatch, int]:
        """The sources of an identity on disk, with their versions."""
