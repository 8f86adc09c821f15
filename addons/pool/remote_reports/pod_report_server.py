"""Serves the reports of this node's kubelet on its pods to the other hubs of the pool, as a list and a watch."""

from __future__ import annotations

import time
from collections.abc import Callable

from addons.filters.inputs import PodReport
from addons.inputs.pod_reports import PodReports
from addons.pool.remote_reports.report_objects import (
    API_VERSION,
    KIND,
    MAX_REPORT_BYTES,
    MAX_REPORTS,
    report_object,
)
from addons.requests.answers import Answer, ClientRequest, ClientStream
from addons.views.list_answer import list_answer
from addons.views.watch_answer import watch_answer
from kube.bounds import reached
from kube.errors import not_acceptable
from kube.store.listing import FULL_OBJECTS
from kube.store.projection import Projection
from kube.store.scope import EVERYTHING
from kube.store.store import Key, Store
from kube.store.stream_coding import DIFFERENCES, PLAIN
from kube.store.view import View
from kube.store.watcher import Watcher
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding


class PodReportServer:
    """Stores the reports, with versions of its own, and serves one view to all peers."""

    def __init__(self, reports: PodReports, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns Unix seconds, from which versions start, so that they exceed those of an earlier process."""
        self._store = Store()
        began = int(clock() * 1_000_000)
        self._store.replace(codec_for(Encoding.JSON), API_VERSION, KIND, began, [])
        self._view = View(Projection(self._store, None), EVERYTHING, FULL_OBJECTS)
        reports.report_changed = self._take
        for key, report in reports:
            self._take(key, report)

    def close(self) -> None:
        self._view.close()

    async def answer(
        self, wanted: ClientRequest, stream: ClientStream, opened: Callable[[Watcher], None]
    ) -> Answer | None:
        """Return the complete answer to a list; serve a watch until its end and return None. `opened` receives its
        watcher."""
        read, form = wanted.route.read, wanted.route.representation
        assert read is not None
        assert form is not None
        if form.encoding is not Encoding.JSON:
            raise not_acceptable("pod reports come as JSON")
        if read.verb == "list":
            return await list_answer(self._view.listing(), packed=wanted.reads_differences)
        coding = DIFFERENCES if wanted.reads_differences else PLAIN
        await watch_answer(self._view, read, stream, None, coding=coding, opened=opened)
        return None

    def _take(self, key: Key, report: PodReport | None) -> None:
        old, version = self._store.get(key), self._store.version + 1
        if report is None:
            if old is not None:
                self._store.apply("DELETED", old.with_version(version).raw)
            return
        raw = report_object(key, report, version)
        if old is not None and raw == old.with_version(version).raw:
            return
        size = self._store.size + len(raw) - (len(old.stored) if old is not None else 0)
        if size > MAX_REPORT_BYTES or (old is None and len(self._store) >= MAX_REPORTS):
            reached("kubelet's words")
            return
        self._store.apply("MODIFIED" if old is not None else "ADDED", raw)
