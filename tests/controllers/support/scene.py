"""Steps of controller tests on the cluster, and awaited conditions: pools, nodes, services, grids."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

from kube.json_type import Json
from tests.cloud.audit import AuditEvent
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient, RestError
from tests.controllers.support.process import ManagerProcess
from tests.support.objects import obj

POOLS = "/apis/apps.openyurt.io/v1beta2/nodepools"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
PEER = "edgehub.io/peer"
POOL_LABEL = "apps.openyurt.io/nodepool"
TOPOLOGY = "openyurt.io/topologyKeys"
TRIGGER = "openyurt.io/updateTrigger"
POOL_TOPOLOGY = "openyurt.io/nodepool"
PATIENCE = 60.0
"""Seconds to wait for an effect that takes milliseconds on idle cores."""
ACCOUNT = "system:serviceaccount:kube-system:edgehub-manager"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})

TEMPLATE = {"selector": {"appGrid": "echo"}, "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8080}]}
"""The template of the grids, from SuperEdge's example."""

_numbers = itertools.count(1)


class Scene:
    """Steps and conditions of a test. Every object has a new name, so that tests can share one cluster."""

    patience = PATIENCE
    interval = 0.02
    """Seconds between two polls of a condition."""

    def __init__(self, cloud: RealCloud, managers: Sequence[ManagerProcess]) -> None:
        self.cloud = cloud
        self._managers = managers
        self.admin = cloud.admin
        self.namespace = self.name("scene")
        self.admin.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        accounts = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        self.admin.post(accounts, {"metadata": {"name": "default"}})  # every pod needs this service account

    def name(self, kind: str) -> str:
        """Return a new name; later names sort after earlier ones, like lists in a status."""
        return f"{kind}-{next(_numbers):06}"

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
            obj("NodePool", name, spec=spec),
        )
        return name

    def node(self, pool: str = "", *, ready: bool = True, address: str = "10.0.0.1", **labels: str) -> str:
        """Create a node whose hub can lead."""
        name = self.name("node")
        given = {POOL_LABEL: pool, **labels} if pool else labels
        metadata = {"name": name, "labels": given, "annotations": {PEER: "10269"}}
        self.admin.post(NODES, {"metadata": metadata})
        self.set_node(name, ready=ready, address=address)
        return name

    def set_node(self, name: str, *, ready: bool = True, address: str = "10.0.0.1") -> None:
        status = {
            "addresses": [{"type": "InternalIP", "address": address}] if address else [],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        }
        self.admin.patch(f"{NODES}/{name}/status", {"status": status})

    def may(self, user: str, verb: str, group: str, resource: str, namespace: str = "") -> bool:
        """Return True if a user may do this in a namespace, or in every one."""
        attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
        review = {"spec": {"user": user, "resourceAttributes": attributes}}
        answer = self.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

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
            obj(
                "ServiceGrid",
                name,
                labels={"team": "a"},
                apiVersion="superedge.io/v1",
                spec={"gridUniqKey": key, "template": {**TEMPLATE, **template}},
            ),
        )
        return name

    def backends(self, service: str, *nodes: str) -> str:
        """Create Endpoints and a slice of a Service, with an endpoint on each node; return the name of the slice."""
        addresses = [{"ip": f"10.1.0.{n + 1}", "nodeName": node} for n, node in enumerate(nodes)]
        subsets = [{"addresses": addresses, "ports": [{"port": 80}]}] if nodes else []
        self.admin.post(self.endpoints, {"metadata": {"name": service}, "subsets": subsets})
        return self.slice(service, *nodes)

    def seen_nodes(self, reader: RestClient, name: str) -> list[str]:
        """Return the nodes of a slice's endpoints in the hub's own view, from a list at version 0."""
        slices = reader.get(self.slices, resourceVersion="0")["items"]
        [mine] = [each for each in slices if each["metadata"]["name"] == name]
        return [each["nodeName"] for each in mine.get("endpoints") or []]

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
        """Return when the manager has handled all earlier changes, and has written the resulting triggers. It changes a
        service and adds a node to a pool, and waits for the effect of each, as each arrives by its own watch."""
        pool, node = self.pool(), self.node()
        changed, pooled = self.service(), self.service(POOL_TOPOLOGY)
        slices = [self.backends(each, node) for each in (changed, pooled)]

        def touched() -> bool:
            return all(self.trigger(self.slices, each) for each in slices) and all(
                self.trigger(self.endpoints, each) for each in (changed, pooled)
            )

        # If the manager had not read these objects yet, it writes no trigger; then repeat the change.
        for tick in itertools.count():
            annotations = {TOPOLOGY: f"barrier-{tick}"}
            self.admin.patch(f"{self.services}/{changed}", {"metadata": {"annotations": annotations}})
            joins = tick % 2 == 0
            self.relabel(node, pool if joins else None)
            self.sees(POOLS, pool, has_nodes([node] if joins else []))
            if self._comes_true(touched, 1.0):
                break
            assert tick < PATIENCE, "the manager does not follow"
        # Earlier triggers are queued by now; several are written at a time.
        self.until(lambda: not any(self._triggering(each) for each in self._managers if each.leads()))

    def _triggering(self, manager: ManagerProcess) -> bool:
        return any(
            manager.metric("edgehub_manager_busy", controller=f"servicetopology-{kind}") > 0
            for kind in ("endpoints", "endpointslices")
        )

    def triggered(self, obj: Json) -> bool:
        return self.stamp(obj) != ""

    def stamp(self, obj: Json) -> str:
        return str(obj["metadata"].get("annotations", {}).get(TRIGGER, ""))

    def until(self, condition: Callable[[], bool]) -> None:
        """Poll until a condition holds that no watch can report."""
        assert self._comes_true(condition, self.patience), "it did not come true"

    def _comes_true(self, condition: Callable[[], bool], patience: float) -> bool:
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(self.interval)
        return True

    def trigger(self, collection: str, name: str) -> str:
        """Return the current trigger annotation of an object, "" without one."""
        annotations = self.admin.get(f"{collection}/{name}")["metadata"].get("annotations", {})
        return str(annotations.get(TRIGGER, ""))

    def sees(self, collection: str, name: str, condition: Callable[[Json], bool]) -> Json:
        """Return the object as soon as the condition holds; an error in the condition counts as false."""
        return self.admin.wait_for(collection, name, lambda obj: _holds(condition, obj), timeout=PATIENCE)

    def waits_for_end(self, collection: str, name: str, patience: float = PATIENCE) -> None:
        gone = self._comes_true(lambda: not self.there(collection, name), patience)
        assert gone, f"{name} is still there"

    def there(self, collection: str, name: str) -> bool:
        try:
            self.admin.get(f"{collection}/{name}")
        except RestError as error:
            if error.answer.status != 404:
                raise
            return False
        return True

    def events(self, name: str, namespace: str = "default") -> list[str]:
        """Return the reasons of the events about an object."""
        events = self.admin.get(
            f"/api/v1/namespaces/{namespace}/events", fieldSelector=f"involvedObject.name={name}"
        )
        return [event["reason"] for event in events["items"]]

    def writes(self, since: int) -> list[AuditEvent]:
        """Return the managers' writes since a mark of the audit log, without those of their Leases."""
        return [
            event
            for event in self.cloud.audit(since)
            if event.user == ACCOUNT
            and event.stage == "RequestReceived"
            and event.verb in WRITES
            and "/leases" not in event.uri
        ]


def has_nodes(wanted: list[str]) -> Callable[[Json], bool]:
    """Return a condition for `Scene.sees` of a pool."""
    return lambda pool: bool(pool["status"]["nodes"] == wanted)


def _holds(condition: Callable[[Json], bool], obj: Json) -> bool:
    try:
        return condition(obj)
    except (KeyError, IndexError, TypeError):
        return False


def condition(obj: Json, kind: str) -> Json:
    """Return one of an object's conditions; KeyError if it is missing."""
    found: Json = {each["type"]: each for each in obj["status"]["conditions"]}[kind]
    return found


def leaders(pool: Json) -> list[str]:
    return [each["nodeName"] for each in pool["status"].get("leaderEndpoints", [])]
