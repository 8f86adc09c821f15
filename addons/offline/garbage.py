"""Deletes unneeded copies from disk: copies unused for days or over the bounds, copies that deleted pods mounted, and
records of callers that left.

Nothing is deleted while the cloud is away, because the hub could not fetch it again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from addons.link.health import Cloud
from addons.offline.offline_tables import OfflineTables
from addons.offline.tables.copy_meta import list_watch_of
from addons.telemetry import metrics
from addons.views.source import Source
from addons.views.sources import Sources
from kube.disk.copy_rows import Meta
from kube.reflector.list_watch import ListWatch
from kube.reflector.state import State
from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding
from kube.wire.protobuf_codec import varint

INTERVAL = 600.0
"""Seconds between deletions of copies of Secrets and ConfigMaps whose pods are gone."""
DAY = 86_400
"""Seconds online between deletions of unused copies, and before the first one.

The time of a copy's last use is wall time, and a node without a battery starts in 1970. A day of monotonic time, in
which every client that needs a copy uses it, makes such jumps of the clock harmless.
"""
MAX_PARTS = 64 * 1024 * 1024
"""Bytes of copies of partial resources without a running source: any process of the node can request selectors."""
COPY_OVERHEAD = 4096
"""Bytes that an empty copy counts: its row on disk, and its name in memory."""
MOUNTED_RESOURCES = frozenset({ResourceType("", "v1", "secrets"), ResourceType("", "v1", "configmaps")})
PODS = ResourceType("", "v1", "pods")
BY_NAME = "metadata.name="

logger = logging.getLogger(__name__)


def unused(last_used: Mapping[str, int], now: float, days: int) -> set[str]:
    """Return the copies unused for so many days. A time in the future counts as recent: a clock was wrong."""
    return {name for name, then in last_used.items() if now - then >= days * DAY}


def unmounted(metas: Mapping[str, Meta], pods: Iterable[tuple[str, Encoding, bytes]]) -> set[str]:
    """Return the copies of single Secrets and ConfigMaps that no pod of this node mounts.

    `pods` are (namespace, encoding, raw form).
    """
    raws: dict[str, list[tuple[Encoding, bytes]]] = {}
    for namespace, encoding, raw in pods:
        raws.setdefault(namespace, []).append((encoding, raw))
    return {
        name
        for name, meta in metas.items()
        if (mounted := _mounted(meta)) is not None
        and not any(_names(encoding, raw, mounted[1]) for encoding, raw in raws.get(mounted[0], ()))
    }


def beyond_limit(metas: Mapping[str, Meta]) -> list[str]:
    """Return the least recently used copies of partial resources that exceed MAX_PARTS."""
    parts = {name: meta for name, meta in metas.items() if not list_watch_of(meta).is_unfiltered}
    left, beyond = MAX_PARTS, []
    for name in sorted(parts, key=lambda name: parts[name].get("asked", 0), reverse=True):
        left -= parts[name].get("bytes", 0) + COPY_OVERHEAD
        if left < 0:
            beyond.append(name)
    return beyond


def _mounted(meta: Meta) -> tuple[str, str] | None:
    """Return the namespace and name of a copy that kubelet made to mount it: one object, read with the node's
    identity."""
    list_watch = list_watch_of(meta)
    if (
        list_watch.type not in MOUNTED_RESOURCES
        or not list_watch.namespace
        or meta["identity"]
        or list_watch.label_selector
    ):
        return None
    by_name = list_watch.field_selector.startswith(BY_NAME) and "," not in list_watch.field_selector
    return (list_watch.namespace, list_watch.field_selector.removeprefix(BY_NAME)) if by_name else None


def _names(encoding: Encoding, raw: bytes, name: str) -> bool:
    """True if `name` is a value anywhere in a pod: each kind of volume names its Secret in another field."""
    text = name.encode()
    return (b'"%b"' % text if encoding is Encoding.JSON else varint(len(text)) + text) in raw


class Garbage:
    """The task that deletes unneeded copies from disk."""

    def __init__(
        self,
        tables: OfflineTables,
        sources: Sources,
        node: str,
        days: int,
        cloud: Cloud,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._copies, self._answers = tables.copies, tables.answers
        self._callers = tables.known_callers
        self._sources = sources
        self._pods = ListWatch(PODS, field_selector=f"spec.nodeName={node}")
        self._days = days
        self._cloud = cloud
        self._monotonic = monotonic
        self._last = monotonic()
        self._online = 0.0

    async def run(self) -> None:
        """Delete unneeded copies periodically, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                await self.collect()
            except Exception:
                logger.exception("the collection of garbage on disk failed")

    async def collect(self) -> None:
        """Delete unneeded copies now."""
        now = self._monotonic()
        passed, self._last = now - self._last, now
        if not self._cloud.is_up:
            return
        await self._drop_unmounted()
        await self._drop(beyond_limit(self._copies.idle()), "no room")
        self._online += passed
        if self._online >= DAY:
            self._online = 0.0
            await self._drop_unused()

    async def _drop_unused(self) -> None:
        now = self._copies.access.clock()
        last_used = {name: meta.get("asked", 0) for name, meta in self._copies.idle().items()}
        copies = unused(last_used, now, self._days)
        answers = unused(
            {name: entry.last_used for name, entry in self._answers.index.items()}, now, self._days
        )
        for name in answers:
            self._answers.forget(name)
        callers = self._callers.delete_expired(self._days)
        await self._drop(copies, "unused", also=len(answers) + callers)

    async def _drop_unmounted(self) -> None:
        pods = next((source for source in self._sources if self._has_all_pods(source)), None)
        if pods is None:
            return
        encoding = pods.store.codec.encoding
        raws = ((item.key[0], encoding, item.raw) for item in pods.store)
        await self._drop(unmounted(self._copies.idle(), raws), "unmounted")

    def _has_all_pods(self, source: Source) -> bool:
        """Whether a source holds all pods of this node, and follows the cloud."""
        list_watch = source.list_watch
        return (
            (list_watch.type, list_watch.namespace, list_watch.field_selector, list_watch.label_selector)
            == (self._pods.type, "", self._pods.field_selector, "")
            and not list_watch.metadata_only
            and not source.user
            and source.store.complete
            and source.reflector.state is State.WATCHING
        )

    async def _drop(self, names: Collection[str], reason: str, also: int = 0) -> None:
        if names:
            await self._copies.drop(names)
        if names or also:
            metrics.GARBAGE.labels(reason).inc(len(names) + also)
            logger.info("%d copies deleted from disk: %s", len(names) + also, reason)
