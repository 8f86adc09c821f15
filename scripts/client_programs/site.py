"""A control plane, a hub in front of it, and the client programs at each door: kube-apiserver, plain port, TLS port."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kube.json_type import Json
from scripts.client_programs.client import Client
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.objects import set_rules
from tests.hub.support.process import Hub
from tests.hub.support.site import hub_before

PROGRAM = (sys.executable, "-m", "addons.command")
STRAIGHT, PLAIN, TLS = "straight", "plain", "TLS"
DOORS = (STRAIGHT, PLAIN, TLS)
NAMESPACE = "clients"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
HIDDEN = "cloud-"
"""The name prefix of Services that the filter hides: those of type LoadBalancer."""
NODE = "edge-clients"
ACCOUNT: Sequence[Json] = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "clients", "namespace": NAMESPACE},
        "rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "clients", "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "clients"},
        "subjects": [{"kind": "ServiceAccount", "name": "clients", "namespace": NAMESPACE}],
    },
)


@dataclass
class Site:
    """The control plane and the hub, each behind its own link, and a direct link for comparison."""

    cloud: RealCloud
    hub: Hub
    links: Mapping[str, Link]
    """The link of direct clients, and the hub's."""
    folder: Path
    commands: Mapping[str, Sequence[str | Path]]
    """The command of each ecosystem's program, by name."""
    token: str
    """The clients' token; the plain port needs none."""
    hides: bool = False
    """Whether the current rules hide Services from every client of the hub."""
    _changes: int = 0
    _stays: str = "made"
    """The Service that the last changes created and left."""

    def kubeconfig(self, door: str) -> Path:
        """Return a client's kubeconfig; for the plain port, the output of `edgehub kubeconfig`."""
        path = self.folder / f"{door}.kubeconfig"
        if door == PLAIN:
            if not path.exists():
                command = [*PROGRAM, "kubeconfig", "--admin", self.hub.admin_url]
                path.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            return path
        if door == TLS:
            authority = self.hub.authority.read_bytes()
            return write_kubeconfig(path, self.hub.tls_url, authority=authority, token=self.token)
        server = f"https://{self.links[STRAIGHT].host}:{self.links[STRAIGHT].port}"
        return self.cloud.kubeconfig(STRAIGHT, server=server, token=self.token)

    def rules(self, **data: str) -> None:
        set_rules(self.cloud, **data)
        self.hides = "discardcloudservice" in data

    def refuse(self) -> None:
        """Refuse connections to the cloud for all, and wait until the hub has noticed."""
        for link in self.links.values():
            link.refuse()
        self.hub.wait_for_metric("edgehub_server_up", 0, 60)

    def carry(self) -> None:
        for link in self.links.values():
            link.carry()

    def change(self, count: int) -> None:
        """Change this many Services: create as many as are deleted, and update each twice. One of the new ones
        stays."""
        admin = self.cloud.admin
        names = [f"made-{self._changes}-{number}" for number in range(count // 4)]
        for name in names:
            admin.post(SERVICES, service(name))
        for text in ("one", "two"):
            for name in names:
                admin.patch(f"{SERVICES}/{name}", {"metadata": {"annotations": {"changed": text}}})
        for name in (self._stays, *names[1:]):
            admin.delete(f"{SERVICES}/{name}")
        self._stays = names[0]
        self._changes += 1

    def wait_until_stored(self) -> None:
        """Return when the hub's disk has the last changes of each source; its clients may have had them earlier."""
        sources = sum(source["path"].endswith("/services") for source in self.hub.sources())
        self.hub.wait_until_stored(self._stays, sources)

    def wanted(self, door: str) -> dict[str, str]:
        """Return the Services that a client at a door must see: version by name."""
        found = {
            each["metadata"]["name"]: each["metadata"]["resourceVersion"]
            for each in self.cloud.admin.get(SERVICES)["items"]
        }
        hides = self.hides and door != STRAIGHT
        return {name: version for name, version in found.items() if not (hides and name.startswith(HIDDEN))}

    @contextmanager
    def clients(self, doors: Iterable[str], what: str) -> Iterator[dict[tuple[str, str], Client]]:
        """Start a client of each ecosystem at each of these servers. `what` is part of the names of their logs."""
        kubeconfigs = {door: self.kubeconfig(door) for door in doors}
        with ExitStack() as stack:
            made = {}
            for name, command in self.commands.items():
                for door, kubeconfig in kubeconfigs.items():
                    log = f"{what}-{name}-{door}"
                    client = Client(log, command, kubeconfig, NAMESPACE, self.folder)
                    stack.callback(client.stop)
                    made[name, door] = client
            yield made


def service(name: str) -> Json:
    kind = "LoadBalancer" if name.startswith(HIDDEN) else "ClusterIP"
    return {"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}}


@contextmanager
def site(
    programs: Mapping[str, Path], commands: Mapping[str, Sequence[str | Path]], folder: Path
) -> Iterator[Site]:
    """Run a site, with Services of both kinds."""
    with ExitStack() as stack:
        cloud = stack.enter_context(RealCloud(folder / "cloud", programs))
        cloud.apply(ACCOUNT)
        token = cloud.token(NAMESPACE, "clients", seconds=4 * 3600)
        for name in (
            "made",
            *(f"kept-{number}" for number in range(6)),
            *(f"{HIDDEN}{number}" for number in range(4)),
        ):
            cloud.admin.post(SERVICES, service(name))
        links = {door: stack.enter_context(Link(cloud.host, cloud.port)) for door in (STRAIGHT, "hub")}
        hub = hub_before(cloud, folder / "hub", NODE, link=links["hub"])
        yield Site(cloud, hub, links, folder, commands, token)
