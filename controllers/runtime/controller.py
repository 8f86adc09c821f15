"""What a controller is, and the loop that runs one: watches put keys in a queue, workers reconcile them.

A controller never sees an event: it is given a key, reads the world from informers, and writes the difference.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from controllers.runtime import metrics
from controllers.runtime.api import Api, NotLeading
from controllers.runtime.events import EventRecorder
from controllers.runtime.informer import Handler, Informer, Informers, ResourceKind
from controllers.settings import Settings
from kube.concurrency.workqueue import Queue
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.store.store import Key

type KeysOf[F] = Callable[[Key, F | None, F | None], Iterable[Key]]
"""The keys that a change concerns: of the object's key, its facts before (None: new) and after (None: gone)."""

REFUSED = frozenset({400, 403, 404, 405, 413, 415, 422})
"""Answers that mean that the API server does not take what was written, however often."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What controllers stand on."""

    api: Api
    informers: Informers
    events: EventRecorder
    settings: Settings


class Controller(ABC):
    """One concern. `watch` in the constructor says what it follows."""

    name: str
    workers = 2
    """Keys worked on at the same time; writes to the API server dominate."""
    settle = 0.0
    """Seconds between a change and the work, so that what changes together is seen together."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.queue: Queue[Key] = Queue()
        self.followed: list[Informer[Any]] = []

    @abstractmethod
    async def reconcile(self, key: Key) -> None:
        """Make the world as the object of this key asks for; do nothing if it is."""

    def watch[F](self, kind: ResourceKind[F], keys_of: KeysOf[F], *, at_first: bool = True) -> Informer[F]:
        """Follow a kind: the keys of each change are queued. `at_first`: also those of what is there at the start."""

        def handle(key: Key, old: F | None, new: F | None, first: bool) -> None:
            if at_first or not first:
                for each in keys_of(key, old, new):
                    self.queue.add_after(each, 0.0 if first else self.settle)

        return self.follow(kind, handle)

    def follow[F](self, kind: ResourceKind[F], handler: Handler[F] | None = None) -> Informer[F]:
        """Read a kind; its informer is waited for before the work begins."""
        informer = self._context.informers.of(kind)
        if handler is not None:
            informer.handle(handler)
        if informer not in self.followed:
            self.followed.append(informer)
        return informer

    @property
    def synced(self) -> bool:
        return all(informer.synced.is_set() for informer in self.followed)

    def busy(self) -> bool:
        """Whether there is a key that waits, is worked on or comes again."""
        return not self.queue.idle

    async def run(self) -> None:
        """Work while leading, until cancelled; what was being worked on is queued again."""
        for informer in self.followed:
            await informer.synced.wait()
        logger.info("%s: working, %d keys wait", self.name, len(self.queue))
        async with asyncio.TaskGroup() as workers:
            for number in range(self.workers):
                workers.create_task(self._work(), name=f"{self.name}-{number}")

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            began = time.perf_counter()
            try:
                result = await self._try(key)
            except asyncio.CancelledError:
                self.queue.add(key)
                raise
            finally:
                self.queue.done(key)
            metrics.WORK_SECONDS.labels(self.name).observe(time.perf_counter() - began)
            metrics.WORK.labels(self.name, result).inc()
            if result == "done":
                self.queue.forget(key)
            else:
                metrics.RETRIES.labels(self.name).inc()
                self.queue.retry(key)

    async def _try(self, key: Key) -> str:
        shown = "/".join(filter(None, key))
        try:
            await self.reconcile(key)
        except NotLeading:
            return "failed"  # this work ends in a moment, and goes on when somebody leads again
        except StatusError as error:
            if error.code == 409:
                return "conflict"
            logger.warning("%s: %s: %s", self.name, shown, error)
            return "refused" if error.code in REFUSED else "failed"
        except Unreachable as error:
            logger.warning("%s: %s: %s", self.name, shown, error)
            return "failed"
        except Exception:
            # A bug of ours that one object brings out must not stop the work on the others.
            logger.exception("%s: %s", self.name, shown)
            return "failed"
        return "done"


def own_key[F](key: Key, old: F | None, new: F | None) -> Iterable[Key]:
    """For `Controller.watch`: the object itself, whenever anything in its facts changed."""
    return () if old == new else (key,)
