"""Answers the filters' questions about one object, and records which inputs they read.

Inputs are small: one label of a node, one node of a pool. So a change affects only the objects whose filtering read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Protocol

from addons.filters.inputs import HubAddress, PodReport, Selection, ServiceFacts
from addons.inputs.input_sources import Input, InputKind, pool_of, unknown
from kube.store.projection import InputKey
from kube.store.store import Key

HUB_INPUT: InputKey = ("address of the hub",)


class KnownInputs(Protocol):
    """The source of the answers: `addons.inputs.filter_inputs.FilterInputs`."""

    @property
    def node_name(self) -> str: ...
    @property
    def pool(self) -> str: ...
    @property
    def hub(self) -> HubAddress: ...
    @property
    def unhealthy(self) -> frozenset[str]: ...
    @property
    def own_pool(self) -> str: ...

    def input(self, kind: InputKind) -> Input: ...
    def kind_of_nodes(self) -> InputKind: ...
    def node_labels(self, kind: InputKind, name: str) -> Mapping[str, str] | None: ...
    def kind_of_pool(self, pool: str) -> InputKind: ...
    def service(self, key: Key) -> ServiceFacts | None: ...
    def pool_members(self, pool: str) -> frozenset[str] | None: ...
    def labelled(self, pool: str) -> frozenset[str] | None: ...
    def ready_nodes(self, service: Key, address_type: str) -> frozenset[str]: ...
    def first_slice(self, service: Key, address_type: str, pod: str) -> str | None: ...
    def selection(self, key: Key) -> Selection | None: ...
    def pod_reports(self, namespace: str) -> Sequence[Mapping[str, PodReport]]: ...
    def refuse_report(self, namespace: str, report: PodReport) -> None: ...


class RecordedInputs:
    """The inputs for filtering one object. `reads` has the keys of all that the filters read.

    `is_complete` is False if one of them is unknown. `pending` is True if it may become known, because the cloud or a
    copy is available.
    """

    def __init__(self, inputs: KnownInputs) -> None:
        self._inputs = inputs
        self.reads: set[InputKey] = set()
        self.pending, self.is_complete = False, True

    @property
    def node_name(self) -> str:
        return self._inputs.node_name

    @property
    def hub(self) -> HubAddress:
        self.reads.add(HUB_INPUT)
        return self._inputs.hub

    def service(self, namespace: str, name: str) -> ServiceFacts | None:
        self.reads.add((InputKind.SERVICE, (namespace, name)))
        return self._inputs.service((namespace, name)) if self._is_known(InputKind.SERVICE) else None

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        self.reads.add((InputKind.NODE, name))
        kind = InputKind.OWN_NODE if name == self.node_name else self._kind_of_nodes()
        if not self._is_known(kind):
            return None
        labels = self._inputs.node_labels(kind, name)
        return RecordedLabels(name, labels, self.reads) if labels is not None else None

    def own_pool(self) -> str:
        if self._inputs.pool:
            return self._inputs.pool
        self.reads.add((InputKind.OWN_NODE,))
        if not self._is_known(InputKind.OWN_NODE):
            return ""
        return pool_of(self._inputs.input(InputKind.OWN_NODE).source.store.get(("", self.node_name)))

    def pool_nodes(self, pool: str) -> Set[str] | None:
        self.reads |= {(InputKind.POOL, pool), unknown(InputKind.OWN_POOL)}
        kind = self._inputs.kind_of_pool(pool)
        if not self._is_known(kind):
            return None
        if not self._inputs.input(kind).is_missing:
            members = self._inputs.pool_members(pool)
        else:
            known = self._is_known(self._kind_of_nodes()) and self._is_known(InputKind.OWN_NODE)
            members = self._inputs.labelled(pool) if known else None
        if members is None:
            return None
        # The pool's status is written after the node's label.
        self.reads.add((InputKind.OWN_NODE,))
        own = self.node_name if pool == self._inputs.own_pool else ""
        return RecordedMembers(pool, members, own, self.reads)

    def ready_nodes(self, namespace: str, service: str, address_type: str) -> frozenset[str] | None:
        self.reads.add((InputKind.SLICE, (namespace, service)))
        if not self._is_known(InputKind.SLICE):
            return None
        return self._inputs.ready_nodes((namespace, service), address_type)

    def is_healthy(self, node: str) -> bool:
        self.reads |= {(InputKind.HEALTH, node), unknown(InputKind.ADDRESS)}
        return node not in self._inputs.unhealthy

    def pod_reports(self, namespace: str) -> RecordedReports:
        self.reads.add((InputKind.POD_REPORT, namespace))
        reports = self._inputs.pod_reports(namespace)
        return RecordedReports(namespace, reports, self.reads, partial(self._inputs.refuse_report, namespace))

    def selection(self, namespace: str, service: str) -> Selection | None:
        self.reads |= {(InputKind.SERVICE, (namespace, service)), unknown(InputKind.SERVICE)}
        # Never pending: while the cloud is away a source may stay unknown, and kubelet's report must apply.
        is_known = self._inputs.input(InputKind.SERVICE).is_known
        return self._inputs.selection((namespace, service)) if is_known else None

    def first_slice(self, namespace: str, service: str, address_type: str, pod: str) -> str | None:
        self.reads |= {(InputKind.SLICE, (namespace, service), "pods"), unknown(InputKind.SLICE)}
        is_known = self._inputs.input(InputKind.SLICE).is_known
        return self._inputs.first_slice((namespace, service), address_type, pod) if is_known else None

    def _kind_of_nodes(self) -> InputKind:
        self.reads.add(unknown(InputKind.NODE_LABELS))
        return self._inputs.kind_of_nodes()

    def _is_known(self, kind: InputKind) -> bool:
        self.reads.add(unknown(kind))
        asked = self._inputs.input(kind)
        if asked.is_known:
            return True
        self.is_complete = False
        self.pending |= not asked.is_lost
        return False


class RecordedLabels(Mapping[str, str]):
    """The labels of a node. A look-up records that label; an iteration records all labels."""

    __slots__ = ("_labels", "_node", "_reads")

    def __init__(self, node: str, labels: Mapping[str, str], reads: set[InputKey]) -> None:
        self._node = node
        self._labels = labels
        self._reads = reads

    def __getitem__(self, key: str) -> str:
        self._reads.add((InputKind.NODE, self._node, key))
        return self._labels[key]

    def __iter__(self) -> Iterator[str]:
        self._reads.add((InputKind.NODE, self._node, None))
        return iter(self._labels)

    def __len__(self) -> int:
        self._reads.add((InputKind.NODE, self._node, None))
        return len(self._labels)


class RecordedMembers(Set[str]):
    """The nodes of a pool. A membership test records that node; an iteration records all nodes."""

    __slots__ = ("_members", "_own", "_pool", "_reads")

    def __init__(self, pool: str, members: frozenset[str], own: str, reads: set[InputKey]) -> None:
        """`own` is this node's name if its own label names the pool; "" otherwise."""
        self._pool = pool
        self._members = members
        self._own = own
        self._reads = reads

    def __contains__(self, node: object) -> bool:
        self._reads.add((InputKind.POOL, self._pool, node))
        return node in self._members or (bool(self._own) and node == self._own)

    def __iter__(self) -> Iterator[str]:
        self._reads.add((InputKind.POOL, self._pool, None))
        return iter(self._members | {self._own} if self._own else self._members)

    def __len__(self) -> int:
        self._reads.add((InputKind.POOL, self._pool, None))
        return len(self._members) + (bool(self._own) and self._own not in self._members)


class RecordedReports:
    """Kubelets' reports of a namespace. A look-up records the reports that it finds; the namespace itself is recorded
    by the caller.
    """

    __slots__ = ("_namespace", "_reads", "_reports", "refuse")

    def __init__(
        self,
        namespace: str,
        reports: Sequence[Mapping[str, PodReport]],
        reads: set[InputKey],
        refuse: Callable[[PodReport], None],
    ) -> None:
        """`reports` has the reports of each node, this node's first."""
        self._namespace = namespace
        self._reports = reports
        self._reads = reads
        self.refuse = refuse

    @property
    def is_empty(self) -> bool:
        return not self._reports

    def of(self, name: str) -> list[PodReport]:
        named = [report for reports in self._reports if (report := reports.get(name)) is not None]
        if named:
            self._reads.add((InputKind.POD_REPORT, self._namespace, name))
        return named

    def selected_by(self, selector: Mapping[str, str]) -> list[PodReport]:
        said = (report for reports in self._reports for report in reports.values())
        selected = [report for report in said if selector.items() <= report.labels.items()]
        self._reads.update((InputKind.POD_REPORT, self._namespace, report.name) for report in selected)
        return selected
