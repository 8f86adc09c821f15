"""Pod statuses from this node's kubelet while the cloud was away, until the cloud's own slices reflect them.

A report begins with a status that the hub accepted instead of the cloud, or with the outage itself. After an outage the
cloud has marked pods of a silent node as not ready, and the node reads that before kubelet has reported again. Once the
cloud has the status, the report gets the version of the pod in the cloud, and follows the cloud's state of the pod. It
ends when every slice reflects it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from datetime import datetime

from addons.filters.inputs import Inputs
from addons.inputs.pod_reports import FRESH, PodReports, parse_pod_report
from kube.concurrency.notifier import Notifier
from kube.json_type import Json
from kube.objects.status_update import status_document
from kube.requests.request_info import parse_request
from kube.store.projection import InputKey
from kube.store.store import Change, Item, Key, Store


class KubeletReports(PodReports):
    """The reports on all pods of this node."""

    def __init__(
        self,
        changed: Callable[[Collection[InputKey]], None],
        ask: Callable[[], Inputs],
        open_pods: Callable[[], Store],
        has_pods: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`open_pods` opens the cloud's state of this node's pods. `has_pods` returns whether kubelet reads its pods
        through the hub.
        """
        super().__init__(changed, ask, clock)
        self._open_pods = open_pods
        self._has_pods = has_pods
        self._pods: Store | None = None
        self._has_cloud = True
        self._unconfirmed: set[Key] = set()
        """Pods on which kubelet has not reported since the outage began."""

    def heard(self, path: str, document: Json) -> None:
        """Record a pod's metadata and status from kubelet that the cloud does not have."""
        key = _key(path)
        if key is None:
            return
        was = self._get(key)
        is_same = was is not None and not was.version and key not in self._unconfirmed
        self._put_kubelet_state(key, document, was.since if is_same and was is not None else _now())
        self._unconfirmed.discard(key)
        self._open()

    def left(self) -> None:
        """Handle the start of an outage: the hub's copies of the pods have kubelet's last report of each pod."""
        self._has_cloud = False
        if self._has_pods():
            self._open()
            self.advanced()

    def returned(self) -> None:
        """Handle the end of an outage: for pods on which kubelet has not reported since, the cloud has the last
        report.
        """
        self._has_cloud = True
        for key in self._unconfirmed:
            item = self._pods.get(key) if self._pods is not None else None
            if item is not None:
                self._is_in_cloud(key, item.version)
        self._unconfirmed.clear()

    def ended(self, path: str, version: int) -> None:
        """Record that the cloud has the status of a pod, at this version of the pod; 0 if it refused the status."""
        key = _key(path)
        report = self._get(key) if key is not None else None
        if key is None or report is None:
            return
        if not version:
            if not report.version:  # otherwise the cloud has deleted the pod, and its slices may lag
                self._drop([key])
            return
        self._is_in_cloud(key, version)

    def changed(self, change: Change) -> None:
        """Update a report from the cloud's state of its pod."""
        report, item = self._get(change.key), change.new
        if report is None or change.is_local:
            return
        document = status_of(item) if item is not None else {}
        if document is None:
            return
        said = parse_pod_report(document, report.since)
        if item is None or said.uid != report.uid:
            if report.addresses or not report.version:
                self._put_cloud_state(
                    change.key, report._replace(addresses=(), version=max(report.version, change.version))
                )
        elif not report.version:
            # The cloud does not have kubelet's report: take only labels and deletion from it.
            terminates = report.is_terminating or said.is_terminating
            self._put(change.key, report._replace(labels=said.labels, is_terminating=terminates))
        elif item.version >= report.version and said != report._replace(version=0, is_fresh=True):
            self._put_cloud_state(change.key, said._replace(version=item.version))

    def advanced(self) -> None:
        """While the cloud is away, take kubelet's reports from the hub's copies of the pods, which may just have been
        read from disk.
        """
        for item in () if self._has_cloud or self._pods is None else self._pods:
            report, document = self._get(item.key), status_of(item)
            if document is not None and (report is None or report.version):
                self._put_kubelet_state(item.key, document, _now())
                self._unconfirmed.add(item.key)

    def restarted(self) -> None:
        """Drop reports with versions: after a restore of the cloud, earlier versions of pods and slices mean
        nothing.
        """
        self._drop([key for key, report in self if report.version])

    async def follow(self, is_up: Callable[[], bool], changed: Notifier) -> None:
        """Handle the start and end of each outage, until cancelled. `changed` notifies when the cloud may have come or
        gone.
        """
        while True:
            if is_up() != self._has_cloud:
                self.returned() if is_up() else self.left()
            await changed.wait()

    async def run(self, stores: Callable[[], Iterable[Store]]) -> None:
        """End reports that slices reflect, until cancelled. `stores` returns the slices and Endpoints that clients on
        this node read.
        """
        while True:
            if not self._reports:
                await self._came.wait()
            await asyncio.sleep(FRESH)
            self.settle(stores())

    def _open(self) -> None:
        if self._pods is None:
            self._pods = self._open_pods()
            self._pods.listen(self)

    def _put_kubelet_state(self, key: Key, document: Json, since: str) -> None:
        self._put(key, parse_pod_report(document, since))
        self._fresh.pop(key, None)
        self._came.notify()

    def _is_in_cloud(self, key: Key, version: int) -> None:
        report = self._get(key)
        if report is None:
            return
        self._put_cloud_state(key, report._replace(version=version))
        item = self._pods.get(key) if self._pods is not None else None
        if item is not None:
            self.changed(Change(item.version, key, None, item))


def status_of(item: Item) -> Json | None:
    """Return the metadata and status of a pod; None if it cannot be parsed."""
    store = item.store
    try:
        return status_document(store.codec.encoding, store.api_version, "Pod", item.raw)
    except (ValueError, LookupError):
        return None


def _now() -> str:
    return f"{datetime.now().astimezone():%H:%M}"


def _key(path: str) -> Key | None:
    """Return the namespace and name of a pod from its path; None for any other object."""
    info = parse_request("GET", path)
    if info.type is None or (info.type.group, info.type.resource) != ("", "pods"):
        return None
    return info.namespace, info.name
