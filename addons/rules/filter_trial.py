"""Runs filters on the objects of a file, without a hub, for authors of filters and their tests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from addons.filters.filter import Filter
from addons.filters.inputs import HubAddress, PodReport, Selection, ServiceFacts
from addons.filters.verdict import Outcome
from addons.rules.filter_modules import load_file
from kube.wire.api_objects import decode_object
from kube.wire.encoding import Encoding


@dataclass(frozen=True)
class GivenInputs:
    """Inputs of a filter (`addons.filters.inputs.Inputs`) as plain values."""

    node_name: str = "node-1"
    hub: HubAddress = HubAddress(("169.254.2.1",), 10268)
    pool: str = ""
    services: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    """The annotations of each Service, by namespace and name."""
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The labels of each node."""
    pools: Mapping[str, Set[str]] = field(default_factory=dict)
    """The nodes of each pool."""
    ready: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """The nodes with a ready endpoint of a Service."""
    unhealthy: frozenset[str] = frozenset()
    pod_statuses: Mapping[str, Sequence[PodReport]] = field(default_factory=dict)
    """The pod statuses that kubelets report, by namespace."""
    selections: Mapping[tuple[str, str], Selection] = field(default_factory=dict)
    """The pod selector of each Service."""
    first_slices: Mapping[tuple[str, str, str, str], str] = field(default_factory=dict)
    """For a pod that no slice of a Service names: the first slice of that Service and address type."""

    def service(self, namespace: str, name: str) -> ServiceFacts | None:
        annotations = self.services.get((namespace, name))
        return ServiceFacts(annotations) if annotations is not None else None

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        return self.nodes.get(name)

    def own_pool(self) -> str:
        return self.pool

    def pool_nodes(self, pool: str) -> Set[str] | None:
        return self.pools.get(pool)

    def ready_nodes(self, namespace: str, service: str, address_type: str) -> frozenset[str] | None:
        return self.ready.get((namespace, service), frozenset())

    def is_healthy(self, node: str) -> bool:
        return node not in self.unhealthy

    def pod_reports(self, namespace: str) -> StaticPodReports:
        return StaticPodReports(self.pod_statuses.get(namespace, ()))

    def selection(self, namespace: str, service: str) -> Selection | None:
        return self.selections.get((namespace, service))

    def first_slice(self, namespace: str, service: str, address_type: str, pod: str) -> str | None:
        return self.first_slices.get((namespace, service, address_type, pod))


@dataclass(frozen=True)
class StaticPodReports:
    """The pod statuses of a namespace (`addons.filters.inputs.PodReportLister`)."""

    pod_statuses: Sequence[PodReport]
    refused: list[PodReport] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.pod_statuses

    def of(self, name: str) -> list[PodReport]:
        return [report for report in self.pod_statuses if report.name == name]

    def refuse(self, report: PodReport) -> None:
        self.refused.append(report)

    def selected_by(self, selector: Mapping[str, str]) -> list[PodReport]:
        return [report for report in self.pod_statuses if selector.items() <= report.labels.items()]


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a filter for an object; `shown` is the object as its component gets it, None if hidden."""

    filter: str
    name: str
    outcome: Outcome
    reason: str
    notes: tuple[str, ...]
    shown: Any


def try_filters(filters: Path, objects: Path, inputs: GivenInputs | None = None) -> list[Tried]:
    """Run each filter of a file on each object of a YAML file to which it applies.

    ValueError for a file that a hub would refuse, and for a filter that breaks a promise: it writes to an object that
    it does not report as changed, or changes its own result when it runs again.
    """
    documents = [document for document in yaml.safe_load_all(objects.read_text()) if document]
    given = inputs or GivenInputs()
    return [_try(filter_, tree, given) for filter_ in load_file(filters) for tree in _objects(documents)]


def _objects(documents: list[Any]) -> Iterator[Any]:
    """Yield each object; for a List, as kubectl prints it, its items."""
    for document in documents:
        yield from document["items"] if document.get("kind") == "List" else (document,)


def _try(filter_: Filter, tree: Any, inputs: GivenInputs) -> Tried:
    name = tree["metadata"]["name"]
    raw = json.dumps(tree).encode()
    notes: list[str] = []
    obj = decode_object(Encoding.JSON, tree["apiVersion"], tree["kind"], raw)
    verdict = filter_.apply(obj, inputs, lambda *said: notes.append(" ".join(said)))
    made = json.loads(obj.encode())
    if (made != tree) is not (verdict.outcome is Outcome.CHANGED):
        raise ValueError(f"{filter_.name} reports {name} as {verdict.outcome}, but did something else")
    again = decode_object(Encoding.JSON, tree["apiVersion"], tree["kind"], obj.encode())
    if filter_.apply(again, inputs).outcome is not Outcome.DROPPED and json.loads(again.encode()) != made:
        raise ValueError(f"{filter_.name} is not idempotent: a second run changes {name}")
    shown = None if verdict.outcome is Outcome.DROPPED else made
    return Tried(filter_.name, name, verdict.outcome, verdict.reason, tuple(notes), shown)
