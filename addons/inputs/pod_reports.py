"""Pod statuses from one node's kubelet while the cloud was away, until the cloud's own slices reflect them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from addons.filters.builtin.localpods import LocalPods
from addons.filters.inputs import Inputs, PodReport
from addons.filters.verdict import Outcome
from addons.inputs.input_sources import InputKind
from addons.views.sources import Sources
from kube.concurrency.notifier import Notifier
from kube.json_type import Json
from kube.store.projection import InputKey
from kube.store.store import Item, Key, Store
from kube.wire.fields import Edits, Fields
from kube.wire.json_fields import JsonFields

FRESH = 30.0
"""Seconds after the cloud's write of a pod in which the endpoints controller may still write a slice without the pod.

The controller writes a slice for one pod before it has received the next, and many pods return at once.
"""
ENDED = frozenset({"Succeeded", "Failed"})
"""Phases of a pod that has terminated and is no endpoint."""


class PodReports:
    """The reports of one kubelet, by namespace and pod."""

    def __init__(
        self,
        changed: Callable[[Collection[InputKey]], None],
        ask: Callable[[], Inputs],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`changed` gets the keys of changed inputs; `ask` returns the inputs for filtering one object."""
        self._changed = changed
        self._ask = ask
        self._clock = clock
        self._reports: dict[str, dict[str, PodReport]] = {}
        self._fresh: dict[Key, float] = {}
        """Time of the cloud's latest write of each pod, by `clock`."""
        self._former = 0
        self._came = Notifier()
        """Notified of each new report."""
        self.report_changed: Callable[[Key, PodReport | None], None] = lambda _key, _report: None
        """Called with each changed report, and with None for each that has ended."""

    def __iter__(self) -> Iterator[tuple[Key, PodReport]]:
        return iter(
            [
                ((namespace, name), report)
                for namespace, reports in self._reports.items()
                for name, report in reports.items()
            ]
        )

    def of(self, namespace: str) -> Mapping[str, PodReport]:
        return self._reports.get(namespace, {})

    def settle(self, stores: Iterable[Store]) -> None:
        """End the reports that the cloud's slices reflect. All reports of a namespace end together."""
        now, stores = self._clock(), list(stores)
        former = max((store.former_version for store in stores), default=0)
        if former > self._former:
            # The cloud was restored: earlier versions of pods and slices mean nothing.
            self._former = former
            self._drop([key for key, report in self if report.version])
        for key in [key for key, at in self._fresh.items() if now - at >= FRESH]:
            del self._fresh[key]
            report = self._get(key)
            if report is not None:
                self._put(key, report._replace(is_fresh=False))
        over = {
            namespace: max(report.version for report in reports.values())
            for namespace, reports in self._reports.items()
            if all(report.version and not report.is_fresh for report in reports.values())
        }
        if over:
            late = {
                item.key[0]
                for store in stores
                for item in store
                if item.version < over.get(item.key[0], 0) and self._is_late(item)
            }
            self._drop(
                [(namespace, name) for namespace in over.keys() - late for name in self._reports[namespace]]
            )

    def _is_late(self, item: Item) -> bool:
        try:
            return LocalPods().apply(item.decode(), self._ask()).outcome is Outcome.CHANGED
        except ValueError:
            return False  # no client sees it

    def _get(self, key: Key) -> PodReport | None:
        return self.of(key[0]).get(key[1])

    def _put_cloud_state(self, key: Key, report: PodReport) -> None:
        """Store the cloud's own state of a pod."""
        self._fresh[key] = self._clock()
        self._put(key, report._replace(is_fresh=True))

    def _put(self, key: Key, report: PodReport) -> None:
        namespace, name = key
        was = self._get(key)
        self._reports.setdefault(namespace, {})[name] = report
        touched: set[InputKey] = set()
        if was is None or was.labels != report.labels:
            touched.add((InputKind.POD_REPORT, namespace))
        if was != report:
            touched.add((InputKind.POD_REPORT, namespace, name))
            self.report_changed(key, report)
        if touched:
            self._changed(touched)

    def _drop(self, keys: Iterable[Key]) -> None:
        touched: set[InputKey] = set()
        for namespace, name in keys:
            del self._reports[namespace][name]
            self._fresh.pop((namespace, name), None)
            self.report_changed((namespace, name), None)
            touched |= {(InputKind.POD_REPORT, namespace), (InputKind.POD_REPORT, namespace, name)}
            if not self._reports[namespace]:
                del self._reports[namespace]
        if touched:
            self._changed(touched)


def parse_pod_report(document: Json, since: str) -> PodReport:
    """Parse a pod's metadata and status as Kubernetes' endpoint controllers do."""
    pod = JsonFields(document, Edits())
    metadata, status = pod.child("metadata"), pod.child("status")
    addresses = [address.text("ip") for address in status.children("podIPs")] or [status.text("podIP")]
    if status.text("phase") in ENDED:
        addresses = []
    conditions = {condition.text("type"): condition for condition in status.children("conditions")}
    return PodReport(
        metadata.text("name"),
        metadata.text("uid"),
        metadata.mapping("labels"),
        tuple(filter(None, addresses)),
        _is_ready(conditions),
        metadata.has("deletionTimestamp"),
        since,
    )


def _is_ready(conditions: Mapping[str, Fields]) -> bool:
    """Whether kubelet considers the pod ready, even if the node lifecycle controller has marked it as not ready.

    That controller leaves kubelet's ContainersReady unchanged, and sets no reason, which kubelet always does.
    """
    ready, containers = conditions.get("Ready"), conditions.get("ContainersReady")
    if ready is None:
        return False
    is_marked = containers is not None and containers.text("status") == "True" and not ready.text("reason")
    return ready.text("status") == "True" or is_marked


def endpoint_stores(sources: Sources) -> Iterator[Store]:
    """Yield the stores of the slices and Endpoints that components of this node read."""
    for source in sources:
        type_ = source.list_watch.type
        if (type_.group, type_.resource) in LocalPods.resources and not source.list_watch.metadata_only:
            yield source.store
