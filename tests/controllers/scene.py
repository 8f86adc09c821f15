"""What a test of the controllers does to the cluster, and what it waits to see: pools, nodes, services, grids."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from tests.cloud.audit import AuditEvent
from tests.cloud.real import RealCloud
from tests.cloud.rest import Json, RestError

POOLS = "/apis/apps.openyurt.io/v1beta2/nodepools"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
POOL_LABEL = "apps.openyurt.io/nodepool"
TOPOLOGY = "openyurt.io/topologyKeys"
TRIGGER = "openyurt.io/updateTrigger"
PATIENCE = 30.0
"""Seconds for an effect, milliseconds on idle cores."""
ACCOUNT = "system:serviceaccount:kube-system:edgehub-manager"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})

TEMPLATE = {"selector": {"appGrid": "echo"}, "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8080}]}
"""Of the grids, document 004's."""

_numbers = itertools.count(1)


class Scene:
    """Every object it makes has a new name, so that tests can share one cluster."""

    def __init__(self, cloud: RealCloud) -> None:
        self.cloud = cloud
        self.admin = cloud.admin
        self.namespace = self.name("scene")
        self.admin.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def name(self, kind: str) -> str:
        # Padded: the manager sorts names, and tests name things in the order of their making.
        return f"{kind}-{next(_numbers):04}"

    @property
    def services(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/services"

    @property
    def endpoints(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/endpoints"

    @property
    def slices(self) -> str:
        return f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"

    @property
    def grids(self) -> str:
        return f"/apis/superedge.io/v1/namespaces/{self.namespace}/servicegrids"

    def pool(self, name: str = "", **spec: Any) -> str:
        name = name or self.name("pool")
        self.admin.post(
            POOLS,
            {
                "apiVersion": "apps.openyurt.io/v1beta2",
                "kind": "NodePool",
                "metadata": {"name": name},
                "spec": spec,
            },
        )
        return name

    def node(self, pool: str = "", *, ready: bool = True, address: str = "10.0.0.1", **labels: str) -> str:
        name = self.name("node")
        given = {POOL_LABEL: pool, **labels} if pool else labels
        self.admin.post(NODES, {"metadata": {"name": name, "labels": given}})
        self.set_node(name, ready=ready, address=address)
        return name

    def set_node(self, name: str, *, ready: bool = True, address: str = "10.0.0.1") -> None:
        status = {
            "addresses": [{"type": "InternalIP", "address": address}] if address else [],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        }
        self.admin.patch(f"{NODES}/{name}/status", {"status": status})

    def relabel(self, node: str, pool: str | None) -> None:
        self.admin.patch(f"{NODES}/{node}", {"metadata": {"labels": {POOL_LABEL: pool}}})

    def service(self, topology: str | None = None) -> str:
        name = self.name("service")
        annotations = {} if topology is None else {TOPOLOGY: topology}
        spec = {"ports": [{"port": 80}]}
        self.admin.post(self.services, {"metadata": {"name": name, "annotations": annotations}, "spec": spec})
        return name

    def grid(self, key: str = "zone1", name: str = "", **template: Any) -> str:
        name = name or self.name("grid")
        self.admin.post(
            self.grids,
            {
                "apiVersion": "superedge.io/v1",
                "kind": "ServiceGrid",
                "metadata": {"name": name, "labels": {"team": "a"}},
                "spec": {"gridUniqKey": key, "template": {**TEMPLATE, **template}},
            },
        )
        return name

    def backends(self, service: str, *nodes: str) -> str:
        """Endpoints and a slice of a Service, with an endpoint on each node; the name of the slice."""
        addresses = [{"ip": f"10.1.0.{n + 1}", "nodeName": node} for n, node in enumerate(nodes)]
        subsets = [{"addresses": addresses, "ports": [{"port": 80}]}] if nodes else []
        self.admin.post(self.endpoints, {"metadata": {"name": service}, "subsets": subsets})
        return self.slice(service, *nodes)

    def slice(self, service: str, *nodes: str) -> str:
        addresses = [{"ip": f"10.1.0.{n + 1}", "nodeName": node} for n, node in enumerate(nodes)]
        name = self.name(service)
        self.admin.post(
            self.slices,
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
                "addressType": "IPv4",
                "endpoints": [
                    {"addresses": [each["ip"]], "nodeName": each["nodeName"]} for each in addresses
                ],
                "ports": [{"port": 80}],
            },
        )
        return name

    def barrier(self) -> None:
        """Returns when the manager has seen all that was done before, and has done what it does about that.

        A chain through every controller that could be late: a service that changes, a pool that gets a node; the
        triggers that follow from both come last.
        """
        pool, node, service = self.pool(), self.node(), self.service()
        name = self.backends(service, node)
        self.relabel(node, pool)
        self.sees(POOLS, pool, lambda obj: obj["status"]["nodes"] == [node])
        tick = 0
        deadline = time.monotonic() + PATIENCE
        # The manager may see the slice after the service's change, and then does not touch it: change it again.
        while not (self.trigger(self.slices, name) and self.trigger(self.endpoints, service)):
            assert time.monotonic() < deadline, "the manager does not follow"
            tick += 1
            value = f"barrier-{tick}"
            self.admin.patch(f"{self.services}/{service}", {"metadata": {"annotations": {TOPOLOGY: value}}})
            time.sleep(0.05)

    def triggered(self, obj: Json) -> bool:
        return self.stamp(obj) != ""

    def stamp(self, obj: Json) -> str:
        return str(obj["metadata"].get("annotations", {}).get(TRIGGER, ""))

    def until(self, condition: Callable[[], bool]) -> None:
        """Ask until a condition holds that nothing can be watched for."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "it did not come true"
            time.sleep(0.02)

    def trigger(self, collection: str, name: str) -> str:
        """The trigger annotation of an object now, "" without one."""
        annotations = self.admin.get(f"{collection}/{name}")["metadata"].get("annotations", {})
        return str(annotations.get(TRIGGER, ""))

    def sees(self, collection: str, name: str, condition: Callable[[Json], bool]) -> Json:
        """The object as soon as the condition holds, with garbage seen as a condition that does not."""
        return self.admin.wait_for(collection, name, lambda obj: _holds(condition, obj), timeout=PATIENCE)

    def waits_for_end(self, collection: str, name: str, patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while self.there(collection, name):
            assert time.monotonic() < deadline, f"{name} is still there"
            time.sleep(0.02)

    def there(self, collection: str, name: str) -> bool:
        try:
            self.admin.get(f"{collection}/{name}")
        except RestError as error:
            if error.answer.status != 404:
                raise
            return False
        return True

    def events(self, name: str, namespace: str = "default") -> list[str]:
        """The reasons of the events about an object."""
        events = self.admin.get(
            f"/api/v1/namespaces/{namespace}/events", fieldSelector=f"involvedObject.name={name}"
        )
        return [event["reason"] for event in events["items"]]

    def writes(self, since: int) -> list[AuditEvent]:
        """What managers wrote since a mark of the audit log, but for their Leases."""
        return [
            event
            for event in self.cloud.audit(since)
            if event.user == ACCOUNT
            and event.stage == "RequestReceived"
            and event.verb in WRITES
            and "/leases" not in event.uri
        ]


def _holds(condition: Callable[[Json], bool], obj: Json) -> bool:
    try:
        return condition(obj)
    except (KeyError, IndexError, TypeError):
        return False


def condition(obj: Json, kind: str) -> Json:
    """One of an object's conditions; KeyError without it."""
    found: Json = {each["type"]: each for each in obj["status"]["conditions"]}[kind]
    return found


def leaders(pool: Json) -> list[str]:
    return [each["nodeName"] for each in pool["status"].get("leaderEndpoints", [])]
