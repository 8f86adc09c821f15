"""Provides filters' inputs about the cluster from the hub's own sources.

A source starts when a filter first needs it. For each object the hub records which inputs the filters read, by
`InputKey`. When an input changes, only the objects that read it are filtered again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import partial
from ipaddress import ip_address

from addons.filters.inputs import HubAddress, PodReport, Selection, ServiceFacts
from addons.inputs.derived import (
    Derived,
    SliceFacts,
    addresses_of,
    labels_in,
    members_in,
    pods_in,
    selection_in,
    service_facts_in,
    service_of_slice,
    slice_facts_in,
)
from addons.inputs.input_sources import Changed, Input, InputKind, list_watches_of, pool_of, unknown
from addons.inputs.pod_reports import PodReports
from addons.inputs.recorded_inputs import HUB_INPUT, RecordedInputs
from addons.views.source import Source
from kube.concurrency.notifier import Notifier
from kube.reflector.list_watch import ListWatch
from kube.requests.node_labels import BUCKETS, bucket_of
from kube.requests.node_pools import POOL_LABEL
from kube.store.projection import InputKey
from kube.store.store import Change, Key

MANY_LABELS = 2_000
"""Maximum labels of a node, before and after a change together, that are compared one by one. A kubelet could write a
hundred thousand, which all hubs of the cluster read.
"""


class FilterInputs:
    """Opens the sources and indexes their objects. `ask` returns a recorder for filtering one object."""

    def __init__(
        self,
        node: str,
        pool: str,
        hub: HubAddress,
        open_source: Callable[[ListWatch], Source],
        changed: Changed,
    ) -> None:
        """`open_source` opens a source; `changed` gets the keys of changed inputs."""
        self._open, self._changed = open_source, changed
        self.node_name = node
        self.pool = pool
        self.hub = hub
        self.unhealthy: frozenset[str] = frozenset()
        """Names of the nodes that the local health service reports as unhealthy."""
        self.learned = Notifier()
        """Notified when an input changes or becomes known."""
        self._inputs: dict[InputKind, Input] = {}
        self.reports: dict[str, PodReports] = {}
        """Pod statuses from kubelets while the cloud was away, by node: this node's first, then those of the pool's
        other nodes.
        """
        self.refused: Callable[[str, PodReport], None] = lambda _namespace, _report: None
        """Called with namespace and report if a report was sent by another node than the pod's."""
        self._followed_pool = ""
        """Name of the pool that the input OWN_POOL watches."""
        self._facts = Derived(service_facts_in)
        self._selections = Derived(selection_in)
        self._members = Derived(members_in)
        self._buckets: dict[str, Mapping[str, Mapping[str, str]]] = {}
        """Labels of nodes from the manager's NodeLabels objects, by object name and node."""
        self._labelled: defaultdict[str, set[str]] = defaultdict(set)
        self._slices: defaultdict[Key, set[Key]] = defaultdict(set)
        self._slice_facts = Derived(slice_facts_in)
        self._slice_pods = Derived(pods_in)
        self._sick: frozenset[str] = frozenset()
        self._addresses: dict[str, frozenset[str]] = {}

    def close(self) -> None:
        for opened in self._inputs.values():
            opened.close()

    def move_hub(self, hub: HubAddress) -> None:
        """Change the address by which pods reach the hub."""
        if hub != self.hub:
            self.hub = hub
            self.changed({HUB_INPUT})

    def ask(self) -> RecordedInputs:
        return RecordedInputs(self)

    def input(self, kind: InputKind) -> Input:
        held = self._inputs.get(kind)
        if held is not None and kind is InputKind.OWN_POOL and self._followed_pool != self.own_pool:
            self._inputs.pop(kind).release()
            held = None
        if held is None:
            if kind is InputKind.OWN_POOL:
                self._followed_pool = self.own_pool
            list_watches = list_watches_of(kind, self.node_name, self.own_pool)
            follow, forget = self._follower(kind)
            held = Input(kind, self._open, list_watches, self.changed, follow, forget)
            self._inputs[kind] = held
            held.start()
        return held

    @property
    def own_pool(self) -> str:
        """Name of this node's pool, from the operator's option or the node's label; "" while no filter has needed the
        label.
        """
        if self.pool or InputKind.OWN_NODE not in self._inputs:
            return self.pool
        return pool_of(self._inputs[InputKind.OWN_NODE].source.store.get(("", self.node_name)))

    def kind_of_pool(self, pool: str) -> InputKind:
        """Return the input whose source has this NodePool.

        This node's pool has a source of its own, because other pools change as often and most hubs need none of them.
        While the cloud is away, the cached list of all pools may be the only copy.
        """
        is_own = pool and pool == self.own_pool and not self.input(InputKind.OWN_POOL).is_lost
        return InputKind.OWN_POOL if is_own else InputKind.POOL

    def kind_of_nodes(self) -> InputKind:
        """Return the input that has other nodes' labels: the manager's NodeLabels, or the Nodes if it writes none.

        A Node changes at each status update, NodeLabels only when a label does.
        """
        written = self.input(InputKind.NODE_LABELS)
        is_some = written.source.store.complete and not self._has_buckets
        is_none = written.is_refused or written.is_lost
        return InputKind.NODE if is_none or is_some else InputKind.NODE_LABELS

    def node_labels(self, kind: InputKind, name: str) -> Mapping[str, str] | None:
        """Return a node's labels from this input; None if the node does not exist."""
        if kind is InputKind.NODE_LABELS:
            return self._buckets[bucket_of(name)].get(name)
        item = self.input(kind).source.store.get(("", name))
        return item.labels if item is not None else None

    def service(self, key: Key) -> ServiceFacts | None:
        item = self.input(InputKind.SERVICE).source.store.get(key)
        return self._facts.of(item) if item is not None else None

    def selection(self, key: Key) -> Selection | None:
        item = self.input(InputKind.SERVICE).source.store.get(key)
        return self._selections.of(item) if item is not None else None

    def pod_reports(self, namespace: str) -> list[Mapping[str, PodReport]]:
        """Return the pod reports of each node that has any in the namespace, this node's first."""
        return [found for reports in self.reports.values() if (found := reports.of(namespace))]

    def refuse_report(self, namespace: str, report: PodReport) -> None:
        self.refused(namespace, report)

    def pool_members(self, pool: str) -> frozenset[str] | None:
        """Return the nodes of a NodePool. None if it does not exist, or its status is not written yet."""
        item = self.input(self.kind_of_pool(pool)).source.store.get(("", pool))
        return self._members.of(item) if item is not None else None

    def labelled(self, pool: str) -> frozenset[str] | None:
        """Return the nodes whose label names the pool; None if there are none."""
        return frozenset(self._labelled[pool]) if self._labelled.get(pool) else None

    def ready_nodes(self, service: Key, address_type: str) -> frozenset[str]:
        """Return the nodes with a ready endpoint in any slice of this Service and address type."""
        slices = self._slices_of(service, address_type).values()
        return frozenset().union(*(facts.ready for facts in slices))

    def first_slice(self, service: Key, address_type: str, pod: str) -> str | None:
        """Return the name of the first slice of this Service and address type; None if any of them contains the pod."""
        slices = self._slices_of(service, address_type)
        store = self.input(InputKind.SLICE).source.store
        items = (item for key in slices if (item := store.get(key)) is not None)
        if any(pod in self._slice_pods.of(item) for item in items):
            return None
        return min((name for _, name in slices), default=None)

    def local_health(self, unhealthy: frozenset[str]) -> None:
        """Set the nodes that the local health service reports as unhealthy, by name or IP address.

        A node that is reported by address counts as healthy until the hub knows its addresses.
        """
        self._sick = unhealthy
        if any(map(_is_address, unhealthy)):
            # Addresses require complete Node objects, which only hubs that need them read from the cloud.
            self.input(InputKind.ADDRESS)
        behind = {name for name, addresses in self._addresses.items() if addresses & unhealthy}
        was, self.unhealthy = self.unhealthy, unhealthy | behind
        if was != self.unhealthy:
            self.changed({(InputKind.HEALTH, node) for node in was ^ self.unhealthy})

    def changed(self, touched: Collection[InputKey]) -> None:
        """Filter again all objects that read these inputs."""
        self._changed(touched)
        self.learned.notify()

    def _follower(self, kind: InputKind) -> tuple[Callable[[Change], set[InputKey]], Callable[[], None]]:
        match kind:
            case InputKind.SERVICE:
                return self._of_service, self._forget_services
            case InputKind.OWN_NODE:
                return self._of_own_node, partial(self._forget_labels, own=True)
            case InputKind.NODE:
                return self._of_node, partial(self._forget_labels, own=False)
            case InputKind.NODE_LABELS:
                return self._of_bucket, self._forget_buckets
            case InputKind.ADDRESS:
                return self._of_address, self._addresses.clear
            case InputKind.OWN_POOL:
                return self._of_pool, self._members.clear
            case InputKind.POOL:
                return self._of_other_pool, self._members.clear
            case InputKind.SLICE:
                return self._of_slice, self._slices.clear
            case InputKind.HEALTH | InputKind.POD_REPORT:
                raise ValueError(f"{kind} is no source of objects")

    def _of_service(self, change: Change) -> set[InputKey]:
        known = [selector.follow(change) for selector in (self._facts, self._selections)]
        affected = [services for services in known if services is not None]
        is_same = bool(affected) and all(before == after for before, after in affected)
        return set() if is_same else {(InputKind.SERVICE, change.key)}

    def _forget_services(self) -> None:
        self._facts.clear()
        self._selections.clear()

    def _of_own_node(self, change: Change) -> set[InputKey]:
        touched = self._of_relabelled(change)
        if pool_of(change.old) != pool_of(change.new):
            touched.add((InputKind.OWN_NODE,))
        return touched

    def _of_node(self, change: Change) -> set[InputKey]:
        # OWN_NODE reports changes of this node. If both did, clients would get two events.
        return set() if change.key[1] == self.node_name else self._of_relabelled(change)

    def _of_relabelled(self, change: Change) -> set[InputKey]:
        before, after = (
            object_.labels if object_ is not None else None for object_ in (change.old, change.new)
        )
        return self._of_relabelling(change.key[1], before, after)

    @property
    def _has_buckets(self) -> bool:
        return len(self._buckets) == BUCKETS

    def _of_bucket(self, change: Change) -> set[InputKey]:
        had = self._has_buckets
        before: Mapping[str, Mapping[str, str]] = self._buckets.pop(change.key[1], {})
        after = labels_in(change.new) if change.new is not None else {}
        if change.new is not None:
            self._buckets[change.key[1]] = after
        if had is not self._has_buckets:
            self._forget_labels(own=False)
            if not had:
                self._take_buckets()
            return {unknown(InputKind.NODE_LABELS)}
        names = before.keys() | after.keys() if had else set()
        changed = (name for name in names if before.get(name) != after.get(name) and name != self.node_name)
        relabelled = (self._of_relabelling(name, before.get(name), after.get(name)) for name in changed)
        return set[InputKey]().union(*relabelled)

    def _take_buckets(self) -> None:
        """Switch to the manager's NodeLabels, which are complete now, and stop watching the Nodes."""
        if InputKind.NODE in self._inputs:
            self._inputs.pop(InputKind.NODE).release()
        for bucket in self._buckets.values():
            for name, labels in bucket.items():
                if name != self.node_name and POOL_LABEL in labels:
                    self._labelled[labels[POOL_LABEL]].add(name)

    def _forget_buckets(self) -> None:
        if self._has_buckets:
            self._forget_labels(own=False)
        self._buckets.clear()

    def _of_relabelling(
        self, name: str, before: Mapping[str, str] | None, after: Mapping[str, str] | None
    ) -> set[InputKey]:
        """Return the keys of the inputs that a change of a node's labels affects; None stands for a node that does not
        exist.
        """
        touched = of_labels(name, before, after)
        was, now = ((labels or {}).get(POOL_LABEL, "") for labels in (before, after))
        if was != now:
            self._labelled[was].discard(name)
            kinds = (InputKind.OWN_POOL, InputKind.POOL)
            by_label = any(self._inputs[kind].is_missing for kind in kinds if kind in self._inputs)
            pools = [pool for pool in (was, now) if pool and by_label]
            # A pool defined by labels exists while it has a node.
            touched |= {(InputKind.POOL, pool) for pool in pools if not self._labelled[pool]}
            touched |= {(InputKind.POOL, pool, node) for pool in pools for node in (name, None)}
        if now:
            self._labelled[now].add(name)
        return touched

    def _forget_labels(self, *, own: bool) -> None:
        for names in self._labelled.values():
            names -= {name for name in names if (name == self.node_name) is own}

    def _of_address(self, change: Change) -> set[InputKey]:
        name = change.key[1]
        now = addresses_of(change.new)
        was_unhealthy = name in self.unhealthy
        self._addresses[name] = now
        if name not in self._sick:
            self.unhealthy = self.unhealthy - {name} if not now & self._sick else self.unhealthy | {name}
        return {(InputKind.HEALTH, name)} if (name in self.unhealthy) is not was_unhealthy else set()

    def _of_other_pool(self, change: Change) -> set[InputKey]:
        # OWN_POOL reports changes of this node's pool. If both did, clients would get two events.
        is_own = InputKind.OWN_POOL in self._inputs and change.key[1] == self._followed_pool
        return set() if is_own else self._of_pool(change)

    def _of_pool(self, change: Change) -> set[InputKey]:
        pool = change.key[1]
        was, now = self._members.follow(change) or (None, None)
        if was is None or now is None:
            return {(InputKind.POOL, pool)}
        moved: set[InputKey] = {(InputKind.POOL, pool, node) for node in was ^ now}
        return moved | {(InputKind.POOL, pool, None)} if moved else moved

    def _of_slice(self, change: Change) -> set[InputKey]:
        was, now = service_of_slice(change.old), service_of_slice(change.new)
        known, pods = self._slice_facts.follow(change), self._slice_pods.follow(change)
        if was is not None:
            self._slices[was].discard(change.key)
        if now is not None:
            self._slices[now].add(change.key)
        services = [service for service in (was, now) if service is not None]
        touched: set[InputKey] = set()
        if was != now or known is None or known[0] != known[1]:
            touched.update((InputKind.SLICE, service) for service in services)
        if was != now or pods is None or pods[0] != pods[1]:
            touched.update((InputKind.SLICE, service, "pods") for service in services)
        return touched

    def _slices_of(self, service: Key, address_type: str) -> dict[Key, SliceFacts]:
        store = self.input(InputKind.SLICE).source.store
        items = [item for key in self._slices.get(service, ()) if (item := store.get(key)) is not None]
        slices = {item.key: self._slice_facts.of(item) for item in items}
        return {key: facts for key, facts in slices.items() if facts.address_type == address_type}


def of_labels(name: str, was: Mapping[str, str] | None, now: Mapping[str, str] | None) -> set[InputKey]:
    """Return the keys of the changed labels, and the node's own key if the node was created or deleted.

    For a node with more than MANY_LABELS labels, return only its own key, which covers all its labels.
    """
    before, after = was or {}, now or {}
    if len(before) + len(after) > MANY_LABELS:
        return {(InputKind.NODE, name)} if before != after or None in (was, now) else set()
    keys = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    touched: set[InputKey] = {(InputKind.NODE, name, key) for key in keys}
    if keys:
        touched.add((InputKind.NODE, name, None))
    if was is None or now is None:
        touched.add((InputKind.NODE, name))
    return touched


def _is_address(text: str) -> bool:
    """Whether the local health service names this node by its IP address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
