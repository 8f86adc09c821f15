"""Pod statuses of another node's kubelet, as that node's hub reports them.

A report ends when the cloud's slices show it, like a report of this node's own kubelet, or when its hub withdraws it.
It stays when the hub becomes silent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable

from addons.filters.inputs import Inputs, PodReport
from addons.inputs.pod_reports import PodReports
from addons.pool.remote_reports.report_objects import MAX_REPORT_BYTES, MAX_REPORTS, read_report
from addons.telemetry import metrics
from kube.bounds import reached
from kube.store.projection import InputKey
from kube.store.store import Change, Key, Store

PACE = 0.05
"""Seconds in which simultaneous changes are batched."""
SHORTEST = 0.5
"""Minimum seconds between two batches, which bounds how often a node that reports continuously causes slices to be
filtered. A single report still reaches kube-proxies within a second."""

logger = logging.getLogger(__name__)


class RemotePodReports(PodReports):
    """Listens to a store of the node's pod reports, which a reflector fills."""

    def __init__(
        self,
        node: str,
        changed: Callable[[Collection[InputKey]], None],
        ask: Callable[[], Inputs],
        newest: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`changed`, `ask` and `clock` are those of `PodReports`. `newest` returns the newest resourceVersion of the
        cloud's slices."""
        super().__init__(changed, ask, clock)
        self.store = Store()
        self.store.listen(self)
        self.flooded: Callable[[], None] = lambda: None
        """Called when the node reports more pods than its bound."""
        self._node = node
        self._newest = newest
        self._began_at: dict[Key, int] = {}
        """For each report, the newest resourceVersion of the cloud's slices when it began."""
        self._waiting: set[Key] = set()
        self._refused: set[Key] = set()
        self._taken = float("-inf")
        """When changes were last applied, by the loop's clock."""
        self._is_listed = self._has_warned = False
        self._timer: asyncio.TimerHandle | None = None

    def changed(self, change: Change) -> None:
        self._wait_for([change.key])

    def advanced(self) -> None:
        if not self._is_listed:  # the objects of a first list come without changes
            self._is_listed = True
            self._wait_for(item.key for item in self.store)

    def restarted(self) -> None:
        self._wait_for({*(item.key for item in self.store), *(key for key, _ in self)})

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def refuse(self, namespace: str, report: PodReport) -> None:
        """Drop a report about another node's pod, and count it."""
        key = (namespace, report.name)
        if key not in self._refused:
            self._refused.add(key)
            self._count("of another node", key)
            self._wait_for([key])

    def end_superseded(self) -> None:
        """End the reports whose slices the cloud has written since they began: the cloud is back and the node's hub
        silent.

        Otherwise a report at a version that the cloud never reaches would never end.
        """
        newest = self._newest()
        for key, report in self:
            version = min(report.version or self._began_at.get(key, 0) + 1, newest + 1)
            if version != report.version:
                self._put(key, report._replace(version=version, is_fresh=False))

    def forget(self) -> None:
        """Drop all reports: the node has left the pool."""
        self._drop([key for key, _ in self])

    def _wait_for(self, keys: Iterable[Key]) -> None:
        if len(self.store) > MAX_REPORTS or self.store.size > MAX_REPORT_BYTES:
            reached("words of another node")
            self.flooded()
            return
        self._waiting.update(keys)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time() + PACE, self._taken + SHORTEST), self._take)

    def _take(self) -> None:
        self._timer, self._taken = None, asyncio.get_running_loop().time()
        waiting, self._waiting = self._waiting, set()
        for key in waiting:
            item, was = self.store.get(key), self._get(key)
            try:
                report = read_report(item.raw, self._node) if item is not None else None
            except ValueError:
                self._count("malformed", key)
                report = None
            if item is None:
                self._refused.discard(key)
            if report is None or key in self._refused:
                if was is not None and (not was.version or key in self._refused):
                    self._drop([key])
            elif report.version:
                if was is None or was._replace(is_fresh=True) != report:
                    self._put_cloud_state(key, report)
            else:
                if was is None or was.version:
                    self._began_at[key] = self._newest()
                self._fresh.pop(key, None)
                self._put(key, report)
        self._began_at = {key: at for key, at in self._began_at.items() if self._get(key) is not None}

    def _count(self, reason: str, key: Key) -> None:
        metrics.REPORTS_REFUSED.labels(reason).inc()
        if not self._has_warned:  # a node may send any number of them
            self._has_warned = True
            logger.warning("node %s: report on pod %r rejected: %s", self._node, "/".join(key), reason)
