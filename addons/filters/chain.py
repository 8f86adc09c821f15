"""All filters in their fixed order, and their application to one object."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

from addons.filters.builtin.discardcloudservice import DiscardCloudService
from addons.filters.builtin.endpoints import EndpointsInPool
from addons.filters.builtin.forwardkubesvctraffic import ForwardKubeSvcTraffic
from addons.filters.builtin.inclusterconfig import InClusterConfig
from addons.filters.builtin.localendpoint import LocalEndpoint
from addons.filters.builtin.localhealth import LocalHealth
from addons.filters.builtin.localpods import LocalPods
from addons.filters.builtin.masterservice import MasterService
from addons.filters.builtin.nodeportisolation import NodePortIsolation
from addons.filters.builtin.serviceenvupdater import ServiceEnvUpdater
from addons.filters.builtin.servicetopology import ServiceTopology
from addons.filters.builtin.topology import Order
from addons.filters.filter import Filter
from addons.filters.inputs import HubAddress, Inputs
from addons.filters.verdict import Note, Outcome, Verdict, ignore_note
from kube.wire.api_objects import ApiObject


def build_filters(
    order: Order = Order.ANY, local: HubAddress | None = None, *, health: bool = False
) -> tuple[Filter, ...]:
    """Every filter, with the hub's options for topology keys and for the local endpoint, in the order in
    which they apply; local health only where the hub has a source of it."""
    return (
        # Services. A filter that hides one goes first: no later filter could bring it back.
        DiscardCloudService(),
        NodePortIsolation(),
        # After both: the rest is rewritten.
        MasterService(),
        # Endpoints and slices. LocalPods comes first, so that the other filters judge the endpoints that it adds.
        LocalPods(),
        # Filters that remove endpoints precede those that set the hub's address, which names no node and would be
        # removed. Among these the order does not matter.
        ServiceTopology(order),
        *((LocalHealth(),) if health else ()),
        EndpointsInPool(),
        # The default rewrite precedes the one that an annotation or option requests, which must win.
        ForwardKubeSvcTraffic(),
        LocalEndpoint(local),
        # Alone with their resources.
        InClusterConfig(),
        ServiceEnvUpdater(),
    )


FILTERS: tuple[Filter, ...] = build_filters()


class ChainVerdict(NamedTuple):
    """The result of the filters together, and the verdict of each filter that ran."""

    outcome: Outcome
    steps: tuple[tuple[str, Verdict], ...]


def apply_chain(
    filters: Sequence[Filter], obj: ApiObject, inputs: Inputs, note: Note = ignore_note
) -> ChainVerdict:
    """Apply the filters in the given order, up to the first that drops the object."""
    outcome, steps = Outcome.KEPT, []
    for filter_ in filters:
        verdict = filter_.apply(obj, inputs, note)
        steps.append((filter_.name, verdict))
        if verdict.outcome is Outcome.DROPPED:
            outcome = Outcome.DROPPED
            break
        if verdict.outcome is Outcome.CHANGED:
            outcome = Outcome.CHANGED
    return ChainVerdict(outcome, tuple(steps))


def check_names(disabled: frozenset[str]) -> None:
    """Raise ValueError for a name that no filter of the hub has."""
    known = [filter_.name for filter_ in build_filters(health=True)]
    for name in sorted(disabled.difference(known)):
        nearest = get_close_matches(name, known, n=1)
        hint = f"is it {nearest[0]}?" if nearest else f"there are {', '.join(sorted(known))}"
        raise ValueError(f"hub_disabled_filters: there is no filter {name!r}: {hint}")
