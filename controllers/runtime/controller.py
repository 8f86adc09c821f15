"""The base of all controllers: informers put keys into a work queue, and workers reconcile them.

`reconcile` gets a key, never an event. It reads the current state from informers and writes the difference, so a lost
or repeated event does no harm.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from controllers.runtime import metrics
from controllers.runtime.informer import EventHandler, Informer, Informers, WatchedResource
from controllers.runtime.write_client import EventRecorder, NotLeading, WriteClient
from controllers.settings import Settings
from kube.concurrency.workqueue import Queue
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.json_type import Json
from kube.store.store import Key

type MapFunc[F] = Callable[[Key, F | None, F | None], Iterable[Key]]
"""Maps a change to the keys to reconcile, as controller-runtime's MapFunc. Arguments: the object's key, its facts
before (None: new) and after (None: deleted)."""

type Reviewer = Callable[[bytes | bytearray], bytes]
"""Makes the answer to an AdmissionReview, both in JSON; ValueError for a review that it is not for."""

REFUSED = frozenset({400, 403, 404, 405, 413, 415, 422})
"""Status codes by which the API server refuses the content of a write: a retry would be refused, too."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """The manager's services that each controller gets."""

    api: WriteClient
    informers: Informers
    events: EventRecorder
    settings: Settings
    server: Callable[[], str]
    """Returns the URL of the API server in use."""
    reviews: dict[str, Reviewer] = field(default_factory=dict)
    """Reviewers of further admission reviews, by path, for the webhook's server. Each controller adds its own in its
    constructor."""


class MeteredQueue(Queue[Key]):
    """The work queue of one controller. It counts keys, and measures how long each waits for a worker."""

    def __init__(self, controller: str) -> None:
        super().__init__()
        self._controller = controller
        self._since: dict[Key, float] = {}

    def add(self, key: Key) -> None:
        super().add(key)
        if key not in self._since:
            self._since[key] = time.perf_counter()
            metrics.QUEUE_ADDS.labels(self._controller).inc()

    async def get(self) -> Key:
        key = await super().get()
        waited = time.perf_counter() - self._since.pop(key)
        metrics.QUEUE_SECONDS.labels(self._controller).observe(waited)
        return key


class Controller(ABC):
    """The base of a controller. A subclass's constructor calls `watch` and `follow` for the kinds that it reads."""

    name: str
    workers = 2
    """Keys that are reconciled concurrently. A reconcile mostly waits for the API server."""
    debounce = 0.0
    """Seconds between a change and its reconcile, so that changes close together cause one reconcile."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.queue = MeteredQueue(self.name)
        self.informers: list[Informer[Any]] = []
        self._optional: set[Informer[Any]] = set()
        self._working: dict[Key, float] = {}
        """The keys that are being reconciled, and since when."""

    @abstractmethod
    async def reconcile(self, key: Key) -> None:
        """Bring the cluster to the desired state of this key's object; write nothing if nothing differs."""

    def watch[F](
        self,
        resource: WatchedResource[F],
        map_func: MapFunc[F],
        *,
        enqueue_initial: bool = True,
        optional: bool = False,
    ) -> Informer[F]:
        """Reconcile the keys to which `map_func` maps each change.

        With `enqueue_initial` the objects of the initial list count as changes. `optional` is as for `follow`.
        """

        def handle(key: Key, old: F | None, new: F | None, is_in_initial_list: bool) -> None:
            if enqueue_initial or not is_in_initial_list:
                for request in map_func(key, old, new):
                    self.queue.add_after(request, 0.0 if is_in_initial_list else self.debounce)

        return self.follow(resource, handle, optional=optional)

    def follow[F](
        self, resource: WatchedResource[F], handler: EventHandler[F] | None = None, *, optional: bool = False
    ) -> Informer[F]:
        """Read a resource without reconciling on its changes. `run` waits for its initial list.

        `run` does not wait for an `optional` kind that the API server does not serve.
        """
        informer = self._context.informers.informer_for(resource)
        if handler is not None:
            informer.add_event_handler(handler)
        if informer not in self.informers:
            self.informers.append(informer)
        if optional:
            self._optional.add(informer)
        return informer

    async def patch(self, informer: Informer[Any], key: Key, patch: Json, subresource: str = "") -> None:
        """Send a merge patch of an object that the informer reads, and wait until the informer has seen it."""
        written = await self._context.api.merge_patch(informer.type, *key, patch, subresource)
        await informer.wait_until_observed(written)

    async def apply(self, informer: Informer[Any], obj: Json, subresource: str = "") -> None:
        """Send a server-side apply of an object that the informer reads, and wait until the informer has seen it."""
        written = await self._context.api.apply(informer.type, obj, subresource)
        await informer.wait_until_observed(written)

    @property
    def has_synced(self) -> bool:
        return all(
            informer.has_synced or (informer.missing and informer in self._optional)
            for informer in self.informers
        )

    async def wait_for_sync(self) -> None:
        """Wait until every resource that the controller reads has synced."""
        for informer in self.informers:
            if informer in self._optional:
                await informer.wait_until_read_or_missing()
            else:
                await informer.wait_for_sync()

    async def watch_the_clock(self) -> None:
        """Run periodic work on the leader, beside the reconciles, until cancelled. Does nothing by default."""
        return

    async def serve(self) -> None:
        """Run on every replica, leading or not, until cancelled. Does nothing by default."""
        return

    def readiness_error(self) -> str:
        """Return why `serve` is not ready, "" when it is."""
        return ""

    def busy(self) -> bool:
        """Whether a key is queued, is being reconciled or will be retried."""
        return not self.queue.idle

    def running_seconds(self) -> list[float]:
        """Return how many seconds each running reconcile has taken so far."""
        now = time.perf_counter()
        return [now - since for since in self._working.values()]

    def publish(self) -> None:
        """Register this controller's metrics, with its counters at zero."""
        metrics.QUEUE_DEPTH.labels(self.name).set_function(self.queue.__len__)
        metrics.BUSY.labels(self.name).set_function(self.busy)
        metrics.WORKERS.labels(self.name).set(self.workers)
        metrics.ACTIVE_WORKERS.labels(self.name).set_function(lambda: len(self._working))
        metrics.UNFINISHED_SECONDS.labels(self.name).set_function(lambda: sum(self.running_seconds()))
        metrics.LONGEST_SECONDS.labels(self.name).set_function(
            lambda: max(self.running_seconds(), default=0.0)
        )
        for counter in (metrics.QUEUE_ADDS, metrics.QUEUE_SECONDS, metrics.WORK_SECONDS, metrics.RETRIES):
            counter.labels(self.name)
        for result in metrics.RESULTS:
            metrics.WORK.labels(self.name, result)

    async def run(self) -> None:
        """Reconcile until cancelled. Cancellation puts the keys of running reconciles back into the queue."""
        await self.wait_for_sync()
        logger.info("%s: started, %d keys wait", self.name, len(self.queue))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watch_the_clock(), name=f"{self.name} clock")
            for number in range(self.workers):
                tasks.create_task(self._work(), name=f"{self.name}-{number}")

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            self._working[key] = began = time.perf_counter()
            try:
                result = await self._reconcile(key)
            except asyncio.CancelledError:
                self.queue.add(key)
                raise
            finally:
                del self._working[key]
                self.queue.done(key)
            metrics.WORK_SECONDS.labels(self.name).observe(time.perf_counter() - began)
            metrics.WORK.labels(self.name, result).inc()
            if result == "done":
                self.queue.forget(key)
            else:
                metrics.RETRIES.labels(self.name).inc()
                self.queue.retry(key)

    async def _reconcile(self, key: Key) -> str:
        shown = "/".join(filter(None, key))
        try:
            await self.reconcile(key)
        except NotLeading:
            return "failed"  # `run` is about to be cancelled; the next leader reconciles the key
        except StatusError as error:
            if error.code == 409:
                return "conflict"
            logger.warning("%s: %s: %s", self.name, shown, error)
            return "refused" if error.code in REFUSED else "failed"
        except Unreachable as error:
            logger.warning("%s: %s: %s", self.name, shown, error)
            return "failed"
        except Exception:
            # A bug that one object triggers must not stop the reconciles of the others.
            logger.exception("%s: %s", self.name, shown)
            return "failed"
        return "done"


def own_key[F](key: Key, old: F | None, new: F | None) -> Iterable[Key]:
    """MapFunc: the object's own key, when its facts changed."""
    return () if old == new else (key,)
