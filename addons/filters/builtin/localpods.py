"""Updates endpoints by kubelets' pod statuses while the cloud is away: address, readiness, end.

Needs: the statuses that kubelet reported for this node's pods in the object's namespace, and, in a pool without its
cloud, the reports of other nodes' kubelets for their pods; the object's Service; for a pod without endpoint, the
slices of that Service. Changes: EndpointSlices (v1, v1beta1) and Endpoints, as Kubernetes' own controllers would
(`podToEndpoint` of k8s.io/endpointslice): each endpoint whose `targetRef` names such a pod; and the first slice gets,
without zone and host name, a pod that the Service selects and no slice names.

A node reports only its own pods: a report of another node than the endpoint's changes nothing. When something is
missing: a pod without a report stays as the cloud has it. Without the Service no endpoint is added, nor to an object
without ports if the Service has named target ports, whose numbers only the pod's spec has. An object larger than
MAX_ENDPOINTS is not filtered.

A report counts until the cloud has written the object later than the pod with the same status (`PodReport.concerns`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from addons.filters.builtin.kubernetesservice import write_texts
from addons.filters.builtin.pruning import SLICE, has_addresses, is_too_large, node_reader, service_of
from addons.filters.filter import ENDPOINT_SLICES, ENDPOINTS, LIST_AND_WATCH
from addons.filters.inputs import Inputs, PodReport, PodReportLister, Selection, family_of
from addons.filters.verdict import Note, Outcome, Verdict, changed, ignore_note, kept
from kube.wire.api_objects import ApiObject
from kube.wire.fields import Fields

READY, NOT_READY = "addresses", "notReadyAddresses"
"""The lists of a subset of Endpoints."""


@dataclass(frozen=True)
class LocalPods:
    name = "localpods"
    resources = frozenset({ENDPOINTS, ENDPOINT_SLICES})
    components = frozenset({"kube-proxy", "coredns", "nginx-ingress-controller"})
    verbs = LIST_AND_WATCH
    reasons = frozenset({"too-many-endpoints", "no-word", "same-word", "kubelets-word"})

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        if is_too_large(obj):
            return kept("too-many-endpoints")
        reports = inputs.pod_reports(obj.namespace)
        if reports.is_empty:
            return kept("no-word")
        service = service_of(obj)
        selection = inputs.selection(obj.namespace, service) if service else None
        edit = _Edit(obj, reports, selection or Selection(), inputs, note, node_reader(obj))
        differs = edit.slice(service) if obj.kind == SLICE else edit.endpoints()
        return changed("kubelets-word") if differs else kept("same-word")


class _Edit(NamedTuple):
    """An object, and the inputs that decide about it."""

    obj: ApiObject
    reports: PodReportLister
    selection: Selection
    inputs: Inputs
    note: Note
    node_of: Callable[[Fields], str]

    def slice(self, service: str) -> bool:
        """Update an EndpointSlice; return whether anything differs."""
        fields, family = self.obj.fields, self.obj.fields.text("addressType")
        named: set[str] = set()
        gone: set[str] = set()
        differs = False
        for endpoint in fields.children("endpoints"):
            report = self._report_of(endpoint, named)
            if report is None:
                continue
            if addresses := report.of_family(family):
                differs |= self._show(endpoint, report, addresses)
            else:
                gone.add(report.name)
                self._note_addresses(endpoint.texts("addresses"), Outcome.DROPPED, report)
        if gone:
            differs |= fields.keep("endpoints", partial(self._is_none_of, gone)) > 0
        for report in self._unnamed(named):
            addresses = report.of_family(family)
            if not addresses or not self._gives_ports(fields):
                continue
            first = self.inputs.first_slice(self.obj.namespace, service, family, report.name)
            if first == self.obj.name:
                self._give_ports(fields)
                endpoint = fields.add("endpoints")
                endpoint.set("nodeName", report.node or self.inputs.node_name)
                self._refer(endpoint, report)
                self._show(endpoint, report, addresses)
                differs = True
        return differs

    def endpoints(self) -> bool:
        """Update an Endpoints object; return whether anything differs."""
        fields = self.obj.fields
        named: set[str] = set()
        differs = False
        for subset in fields.children("subsets"):
            differs |= self._subset(subset, named)
        if differs:
            fields.keep("subsets", has_addresses)
        for report in self._unnamed(named):
            addresses, where = report.of_family(self.selection.family), self._list_of(report)
            if addresses and where and (fields.has("subsets") or self._gives_ports(fields)):
                subset = next(iter(fields.children("subsets")), None) or fields.add("subsets")
                self._give_ports(subset)
                self._add_address(subset, where, report, addresses[0], "")
                self._note_addresses(addresses[:1], Outcome.CHANGED, report)
                differs = True
        return differs

    def _subset(self, subset: Fields, named: set[str]) -> bool:
        leaving: dict[str, set[str]] = {READY: set(), NOT_READY: set()}
        coming: list[tuple[str, PodReport, str, str]] = []
        differs = False
        for here, names in leaving.items():
            for address in subset.children(here):
                report = self._report_of(address, named)
                if report is None:
                    continue
                was = address.text("ip")
                known, there = report.of_family(family_of(was)), self._list_of(report)
                if known and there == here:
                    if known[0] != was:
                        address.set("ip", known[0])
                        self._note_addresses(known[:1], Outcome.CHANGED, report)
                        differs = True
                    continue
                names.add(report.name)
                stays = bool(known and there)
                self._note_addresses([was], Outcome.CHANGED if stays else Outcome.DROPPED, report)
                if stays:
                    coming.append((there, report, known[0], address.text("hostname")))
        for here, names in leaving.items():
            if names:
                subset.keep(here, partial(self._is_none_of, names))
                differs = True
        for there, report, address_now, hostname in coming:
            self._add_address(subset, there, report, address_now, hostname)
        return differs

    def _report_of(self, endpoint: Fields, named: set[str]) -> PodReport | None:
        """Return the kubelet's status of the pod that an endpoint, or an address of Endpoints, names.

        Its name is added to `named`, so that the pod gets no second endpoint.
        """
        target = endpoint.child("targetRef")
        said = self.reports.of(target.text("name")) if target.text("kind") == "Pod" else ()
        for report in said:
            is_same = target.text("uid") in ("", report.uid)
            if is_same or report.node:
                named.add(report.name)
            if not is_same or not report.concerns(self.obj.version):
                continue
            if report.node in ("", self.node_of(endpoint)):
                return report
            self.reports.refuse(report)
        return None

    def _is_none_of(self, pods: Collection[str], endpoint: Fields) -> bool:
        report = self._report_of(endpoint, set())
        return report is None or report.name not in pods

    def _unnamed(self, named: Collection[str]) -> Iterator[PodReport]:
        """Return the pods that the Service selects and the object could name, but does not."""
        if not self.selection.selector:
            return
        for report in self.reports.selected_by(self.selection.selector):
            if report.name not in named and report.addresses and report.concerns(self.obj.version):
                yield report

    def _show(self, endpoint: Fields, report: PodReport, addresses: list[str]) -> bool:
        conditions = endpoint.child("conditions")
        # Of a pod's end the cloud knows more: it may have deleted the pod.
        terminating = report.is_terminating or conditions.flag("terminating") is True
        ready = self.selection.shows_unready or (report.is_ready and not terminating)
        wanted = {"ready": ready, "serving": report.is_ready, "terminating": terminating}
        differs = write_texts(endpoint, "addresses", addresses)
        if _conditions(conditions) != wanted:
            for name, value in wanted.items():
                conditions.set(name, value)
            differs = True
        if differs:
            self._note_addresses(addresses, Outcome.CHANGED, report)
        return differs

    def _list_of(self, report: PodReport) -> str:
        """Return the list of a subset that contains a pod; "" for a terminating pod."""
        if self.selection.shows_unready:
            return READY
        return "" if report.is_terminating else READY if report.is_ready else NOT_READY

    def _gives_ports(self, owner: Fields) -> bool:
        return owner.has("ports") or self.selection.ports is not None

    def _give_ports(self, owner: Fields) -> None:
        """Give ports to a slice or subset that has none: it had no endpoints."""
        if not owner.has("ports"):
            for name, protocol, number in self.selection.ports or ():
                port = owner.add("ports")
                port.set("name", name)
                port.set("protocol", protocol)
                port.set("port", number)

    def _add_address(self, subset: Fields, where: str, report: PodReport, ip: str, hostname: str) -> None:
        address = subset.add(where)
        address.set("ip", ip)
        if hostname:
            address.set("hostname", hostname)
        address.set("nodeName", report.node or self.inputs.node_name)
        self._refer(address, report)

    def _refer(self, endpoint: Fields, report: PodReport) -> None:
        target = endpoint.child("targetRef")
        target.set("kind", "Pod")
        target.set("namespace", self.obj.namespace)
        target.set("name", report.name)
        target.set("uid", report.uid)

    def _note_addresses(self, addresses: list[str], outcome: Outcome, report: PodReport) -> None:
        if self.note is ignore_note:
            return
        how = "no endpoint"
        if report.addresses:
            how = f"{'' if report.is_ready else 'not '}ready at {', '.join(report.addresses)}"
        whose = f"node {report.node}'s kubelet" if report.node else "kubelet's status"
        ends = ", and terminates" if report.is_terminating else ""
        said = f"by {whose}, since {report.since}: pod {report.name} is {how}{ends}"
        self.note(", ".join(addresses), outcome, said)


def _conditions(conditions: Fields) -> dict[str, bool]:
    """Return the conditions of an endpoint in a slice: an absent `ready` counts as true, an absent `serving` as
    `ready`."""
    ready, serving = conditions.flag("ready") is not False, conditions.flag("serving")
    terminating = conditions.flag("terminating") is True
    return {"ready": ready, "serving": ready if serving is None else serving, "terminating": terminating}
