"""A node pool of real hubs with a real control plane, each hub on its own loopback address and behind its own link."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kube.json_type import Json
from kube.requests.node_pools import POOL_LABEL
from tests.cloud.fixtures import HUB_NODES, HUB_RBAC
from tests.cloud.link import Link
from tests.cloud.ports import ReservedPort
from tests.cloud.real import RealCloud
from tests.hub.support.node_pools import POOL_CRD, POOLS
from tests.hub.support.process import Hub

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
SERVICES = "/api/v1/services"
ENDPOINTS = "/api/v1/endpoints"
SHARED = "/v1/services,discovery.k8s.io/v1/endpointslices"


class Member:
    def __init__(self, site: Site, number: int, *, given: bool, flags: tuple[str, ...] = ()) -> None:
        """With `given`, the operator gives the hub a certificate for its peer port, and it requests none. `flags` are
        additional flags of the hub."""
        self.name = f"{site.pool}-{number}"
        self.address = f"127.0.{site.net}.{number}"
        self.path_address = f"127.0.{site.net}.{100 + number}"
        """The listening end of `path`."""
        self.path: Link | None = None
        """The link through which other nodes of the pool reach the peer port, if a test needs to cut it."""
        self.link = Link(site.cloud.host, site.cloud.port)
        self.credential = site.cloud.authority.issue_node(self.name)
        folder = site.folder / self.name
        serving = site.cloud.authority.issue_server(
            f"system:node:{self.name}", [self.address, self.path_address]
        )
        certificate, key = serving.write(site.folder, f"peer-{self.name}")
        self.hub = Hub(
            folder,
            f"https://{self.link.host}:{self.link.port}",
            node=self.name,
            kubeconfig=site.cloud.kubeconfig(f"node-{self.name}", self.credential),
            flags=(
                *("--peer-port", str(site.port), "--peer-address", self.address),
                *("--wait", "20"),
                *(("--peer-cert", str(certificate), "--peer-key", str(key)) if given else ()),
                *flags,
            ),
        )

    def lay_path(self, port: int) -> Link:
        """Make the pool call this hub through a link."""
        self.path = self.path or Link(self.address, port, (self.path_address, port))
        return self.path

    def close(self) -> None:
        self.hub.stop()
        self.link.close()
        if self.path is not None:
            self.path.close()

    def pool(self) -> dict[str, Any]:
        found = self.hub.debug("pool")
        assert isinstance(found, dict)
        return found

    def lists(self, path: str) -> int:
        """Return the number of lists of a resource by the hub's own source."""
        return sum(int(each["lists"]) for each in self.hub.sources() if each["path"] == path)

    def version(self, path: str) -> int:
        """Return the version that the hub's own source of a resource has reached."""
        return max((int(each["version"]) for each in self.hub.sources() if each["path"] == path), default=0)

    def server(self, path: str) -> str:
        """Return the server from which the hub reads a resource."""
        return next((each["server"] for each in self.hub.sources() if each["path"] == path), "")


class Site:
    """The pool: its NodePool, its nodes, its ConfigMap and its hubs. Synchronous."""

    def __init__(
        self, cloud: RealCloud, folder: Path, pool: str, net: int, *, has_node_pools: bool = True
    ) -> None:
        """The nodes have the addresses 127.0.`net`.1 and so on. Without `has_node_pools` the cloud lacks the kind
        NodePool, and a label makes a node a member."""
        self.cloud = cloud
        self._has_node_pools = has_node_pools
        self.folder = folder
        self.pool = pool
        self.net = net
        # mitmproxy refuses to connect to a port number on which it listens, so it would refuse another hub's port,
        # which has the same number here.
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        self.members: list[Member] = []

    def prepare(self, *numbers: int, given: bool = True) -> None:
        """Create the objects of manager and kubelets, and the hubs, without starting them."""
        cloud = self.cloud
        cloud.apply(HUB_RBAC)
        if self._has_node_pools:
            self._make_pool()
        else:
            cloud.apply(HUB_NODES)
        rule = {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [f"leader-hub-{self.pool}"],
            "verbs": ["get", "list", "watch"],
        }
        role = {"metadata": {"name": "edgehub:leader-hubs"}, "rules": [rule]}
        cloud.admin.request("DELETE", f"{ROLES}/edgehub:leader-hubs")
        cloud.admin.post(ROLES, role)
        self.members = [Member(self, number, given=given) for number in numbers]
        for each in self.members:
            self.register(each)
        self.enrol(*self.members)
        cloud.admin.post(CONFIG_MAPS, {"metadata": {"name": f"leader-hub-{self.pool}"}, "data": self._data()})

    def _make_pool(self) -> None:
        self.cloud.apply(POOL_CRD)
        pool = {"apiVersion": "apps.openyurt.io/v1beta2", "kind": "NodePool"}
        self.cloud.admin.post(POOLS, {**pool, "metadata": {"name": self.pool}, "spec": {"type": "Edge"}})

    def register(self, member: Member) -> None:
        """Create the member's Node, with the label of the pool."""
        labels = {POOL_LABEL: self.pool}
        self.cloud.admin.post("/api/v1/nodes", {"metadata": {"name": member.name, "labels": labels}})

    def enrol(self, *members: Member) -> None:
        """Set the pool's members to these nodes."""
        if not self._has_node_pools:
            for each in self.members:
                labels = {POOL_LABEL: self.pool if each in members else None}
                self.cloud.admin.patch(f"/api/v1/nodes/{each.name}", {"metadata": {"labels": labels}})
            return
        names = [each.name for each in members]
        self.cloud.admin.patch(f"{POOLS}/{self.pool}/status", {"status": {"nodes": names}})

    def lead(self, *leaders: Member, scope: str = SHARED) -> None:
        """Publish leaders and the shared resources, as the manager does."""
        data = self._data(*leaders, scope=scope)
        self.cloud.admin.patch(f"{CONFIG_MAPS}/leader-hub-{self.pool}", {"data": data})

    def configure(self, data: Json | None) -> None:
        """Edit the pool's ConfigMap, or create it; None deletes it."""
        name = f"leader-hub-{self.pool}"
        if data is None:
            self.cloud.admin.delete(f"{CONFIG_MAPS}/{name}")
        elif not any(each["metadata"]["name"] == name for each in self.cloud.admin.get(CONFIG_MAPS)["items"]):
            self.cloud.admin.post(CONFIG_MAPS, {"metadata": {"name": name}, "data": data})
        else:
            self.cloud.admin.patch(f"{CONFIG_MAPS}/{name}", {"data": data})

    def _data(self, *leaders: Member, scope: str = SHARED) -> Json:
        return {
            "leaders": ",".join(
                f"{each.name}/{each.path_address if each.path is not None else each.address}"
                for each in leaders
            ),
            "pool-scoped-metadata": scope,
            "interconnectivity": "true",
            "enable-leader-election": "true",
        }

    def start(self) -> None:
        """Start the hubs concurrently; return when all are ready."""
        for each in self.members:
            each.hub.launch()
        for each in self.members:
            each.hub.wait_until_ready()

    def close(self) -> None:
        for each in self.members:
            each.close()
        self._reserved.release()


@contextmanager
def talking_site(cloud: RealCloud, folder: Path, net: int, members: int) -> Iterator[Site]:
    """Create a pool without leaders whose hubs find each other; `net` as for Site."""
    made = Site(cloud, folder, "quarry", net)
    try:
        made.prepare(*range(1, members + 1))
        made.lead()
        made.configure({"hubs": ",".join(f"{each.name}/{each.address}" for each in made.members)})
        made.start()
        yield made
    finally:
        made.close()
