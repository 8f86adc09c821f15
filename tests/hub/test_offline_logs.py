"""Logs, exec, attach and port-forward on a node without its cloud, with real kubelet code and its own authorization.
The kubelet reviews callers at the cloud through the hub, and loses its cache at each restart. The user has a token."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from addons.offline.people.pod_requests import VERBS
from tests.cloud.fixtures import HUB_RBAC, OpenLink
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.kubelet import Kubelet
from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.cloud.rights import account, rights, rule, user
from tests.hub.support.outage import STARTED, Outage
from tests.hub.support.process import Hub
from tests.hub.test_offline_components import is_running
from tests.support.polling import eventually

pytestmark = pytest.mark.since(31, "the kubelet is of the pinned version")


@pytest.fixture
def at_node(real_cloud: RealCloud, link: OpenLink, node: str, tmp_path: Path) -> Iterator[Outage]:
    """Run a hub with a client certificate for its node's kubelet."""
    real_cloud.apply(HUB_RBAC)
    opened = link(real_cloud.host, real_cloud.port)
    certificate, key = real_cloud.authority.issue_client(user_of(node)).write(tmp_path, "for-kubelet")
    flags = (
        *("--kubelet-client-certificate", str(certificate), "--kubelet-client-key", str(key)),
        *("--kubelet-certificate-authority", str(real_cloud.authority_file), "--wait", "60"),
    )
    url, kubeconfig = f"https://{opened.host}:{opened.port}", real_cloud.node_kubeconfig(node)
    with Hub(tmp_path / "hub", url, node=node, kubeconfig=kubeconfig, flags=flags) as hub:
        yield Outage(hub, opened)


def user_of(node: str) -> str:
    return f"edgehub:kubelet:{node}"


class TokenUser:
    """A user of kubectl with a token at the hub's TLS port."""

    def __init__(self, cloud: RealCloud, hub: Hub, namespace: str, name: str, folder: Path) -> None:
        self._cloud, self._namespace = cloud, namespace
        self.kubeconfig = write_kubeconfig(
            folder / f"{name}.kubeconfig",
            hub.tls_url,
            authority=hub.authority.read_bytes(),
            token=cloud.token(namespace, name),
            namespace=namespace,
        )

    def asks(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return self._cloud.kubectl(*args, stdin=stdin, kubeconfig=self.kubeconfig, check=False)

    def gets(self, *args: str, stdin: str = "") -> str:
        done = self.asks(*args, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


def test_a_user_reads_logs_and_executes_in_containers_offline(
    real_cloud: RealCloud, at_node: Outage, namespace: str, cloud_programs: dict[str, Path], tmp_path: Path
) -> None:
    def reviews(cloud: RealCloud, mark: int, user: str) -> list[Any]:
        """Return the answered reviews of permissions that a user has requested."""
        return [
            each
            for each in cloud.audit(mark)
            if "accessreviews" in each.uri and each.user == user and each.stage == "ResponseComplete"
        ]

    def at_kubelet(node: str) -> list[Any]:
        """Return the permissions of the hub's certificate: only this node's kubelet."""
        only = {**rule("", "nodes/proxy", "get create"), "resourceNames": [node]}
        return rights(user_of(node), [only], user(user_of(node)))

    admin, hub, node = real_cloud.admin, at_node.hub, at_node.hub.node
    core = f"/api/v1/namespaces/{namespace}"
    admin.post(f"{core}/serviceaccounts", {"metadata": {"name": "default"}})
    pods = [
        rule("", "pods pods/log", "get"),
        rule("", "pods/exec pods/attach pods/portforward", "get create"),
    ]
    for name, rules in (("person", pods), ("stranger", [rule("", "pods", "get")])):
        real_cloud.apply(rights(name, rules, account(namespace, name), namespace=namespace))
    containers = [{"name": "main", "image": "any"}]
    spec = {"nodeName": node, "containers": containers, "automountServiceAccountToken": False}
    admin.post(f"{core}/pods", {"metadata": {"name": "app"}, "spec": spec})
    person = TokenUser(real_cloud, hub, namespace, "person", tmp_path)
    stranger, unseen = (
        TokenUser(real_cloud, hub, namespace, name, tmp_path) for name in ("stranger", "unseen")
    )
    plain = write_kubeconfig(tmp_path / "plain.kubeconfig", hub.url, namespace=namespace)

    def kubelet(name: str) -> Kubelet:
        folder = tmp_path / name
        folder.mkdir()
        kubeconfig = write_kubeconfig(folder / "kubelet.kubeconfig", hub.url)
        return Kubelet(node, kubeconfig, folder, "10.1.0", real_cloud.authority)

    with kubelet("first"):
        admin.wait_for(f"{core}/pods", "app", is_running, timeout=STARTED)
        # The hub knows the user's permissions only from the user's earlier requests here.
        assert person.gets("logs", "app") == "hello of main\n"
        assert person.gets("exec", "app", "--", "ls", "/") == "ran ls /\n"
        assert person.gets("attach", "app") == "ran attached\n"
        refused = stranger.asks("logs", "app")
        assert "Forbidden" in refused.stderr
        # All permissions except those shown by requests: kubectl also reads the pod and discovery.
        everything = len(VERBS) - 1 + len({"/version"})
        for each in ("person", "stranger"):
            asked = partial(reviews, real_cloud, 0, f"system:serviceaccount:{namespace}:{each}")
            eventually(partial(has, asked, everything), "the rights", STARTED)
        at_node.leave()
        # So far kubelet permits the hub's certificate nothing.
        assert "Forbidden" in person.asks("logs", "app").stderr
        real_cloud.apply(at_kubelet(node))
        mark = real_cloud.audit_mark()
        at_node.come_back()
        asking = f"system:node:{node}"
        eventually(
            partial(has, partial(reviews, real_cloud, mark, asking), 2), "the hub's questions", STARTED
        )
    at_node.leave()
    with kubelet("second"):
        eventually(lambda: person.asks("logs", "app").returncode == 0, "kubelet", STARTED)
        assert person.gets("logs", "app", "--tail=1", "-c", "main") == "hello of main\n"
        assert person.gets("exec", "-i", "app", "--", "cat", stdin="words\n") == "ran cat\nwords\n"
        assert person.gets("attach", "-i", "app", stdin="more\n") == "ran attached\nmore\n"
        followed = Process(
            "followed",
            real_cloud.kubectl_command("logs", "-f", "app", kubeconfig=person.kubeconfig),
            tmp_path,
        )
        try:
            followed.wait_for_line("hello of main", STARTED)
        finally:
            followed.stop()
        # A user without permission gets the reason.
        assert "cannot get resource" in stranger.asks("logs", "app").stderr
        assert (
            "ask with a token of your own"
            in real_cloud.kubectl("logs", "app", kubeconfig=plain, check=False).stderr
        )
        assert "cannot be verified" in unseen.asks("logs", "app").stderr
        assert "is not valid for pod app" in person.asks("logs", "app", "-c", "other").stderr
        forward = Process(
            "port-forward",
            real_cloud.kubectl_command("port-forward", "app", ":8080", kubeconfig=person.kubeconfig),
            tmp_path,
        )
        try:
            said = forward.wait_for_line("Forwarding from 127.0.0.1", STARTED)
            with socket.create_connection(
                ("127.0.0.1", int(said.split(":")[1].split()[0])), STARTED
            ) as client:
                assert client.recv(100) == b"port 8080\n"
                at_node.come_back()
                client.sendall(b"still")
                assert client.recv(100) == b"still"
        finally:
            forward.stop()


def has(asked: Callable[[], list[Any]], number: int) -> bool:
    return len(asked()) >= number
