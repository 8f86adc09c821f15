"""Installation and uninstallation on a node by the commands of docs/install.md, while pods run."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from scripts.node_machine import cloud
from scripts.node_machine.commands import until
from scripts.node_machine.machine import Machine
from tests.node.support import callers, hub
from tests.node.support.asker import answered_throughout
from tests.node.support.callers import LONG, Caller

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]
DISCOVERY = "discovery"
RELEASE, OTHER = "/opt/edgehub", "/opt/other"
COPY = f"""\
cp -a {RELEASE} {OTHER}
sed -i '1s#{RELEASE}#{OTHER}#' {OTHER}/bin/edgehub
"""
"""The same release in a second environment, like the next release."""
AUDIENCE = "oidc-discovery-test"
"""The audience that agnhost expects in its token."""


def test_pods_reach_the_api_server_throughout_installation_and_removal(
    node: Machine, clouds: Machine, manager: None, prepared: None, tmp_path: Path
) -> None:
    def exchange(program: str, running: list[Caller]) -> None:
        """Upgrade to another program."""
        former = hub.pid(node)
        node.run(program, "upgrade", "--healthy=5")
        assert program in node.run("systemctl", "show", "edgehub", "--property=ExecStart")
        assert hub.pid(node) != former
        for caller in running:
            caller.wait_for_calls()

    def kubelet_asks_hub() -> bool:
        return "127.0.0.1" in node.run("grep", "server:", "/etc/kubernetes/kubelet.conf")

    before, after = Caller("before", node, clouds), Caller("after", node, clouds)
    before.start()
    hub.install_program(node, tmp_path / "release")
    # The address of the API server in pods started while the hub is installed.
    address = "169.254.2.1"
    try:
        with answered_throughout("installation", before):
            said = hub.install(node)
        assert "warning: the cluster has not signed" not in said
        assert kubelet_asks_hub()
        before.wait_for_calls()
        after.start()
        hub.start_pods_anew(clouds, node.name)
        assert {call.address for call in after.calls()} == {address}
        assert address not in {call.address for call in before.calls()}
        discover_issuer(node, clouds)
        node.run("sh", "-euc", COPY)
        for what, folder in {"upgrade": OTHER, "rollback": RELEASE}.items():
            with answered_throughout(what, before, after):
                exchange(f"{folder}/bin/edgehub", [before, after])
        restarts, since = after.restarts(), time.time()
        with answered_throughout("uninstallation", before):
            said = hub.uninstall(node)
        assert "default/after" in said
        assert "kube-system/kube-proxy-" in said
        after.wait_for_calls()
    finally:
        hub.uninstall(node)
    assert not kubelet_asks_hub()
    assert after.restarts() == restarts + 1
    calls = [call for call in after.calls() if call.began >= since]
    assert [
        call for call in calls if call.api != "yes"
    ] == []  # DNS is also unavailable while coredns restarts
    assert calls[-1].address != address
    before.wait_for_calls()
    assert cloud.kubectl(
        clouds, "get", "node", node.name, "--output=jsonpath={.status.conditions[-1].status}"
    )


def discover_issuer(node: Machine, clouds: Machine) -> None:
    """Let a pod verify its token by the API server's issuer discovery, as in Kubernetes' own test."""
    token = {"serviceAccountToken": {"path": "token", "audience": AUDIENCE, "expirationSeconds": 7200}}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": DISCOVERY, "labels": {callers.LABEL: ""}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": DISCOVERY,
                    "image": callers.image(node, "agnhost"),
                    "args": [
                        "test-service-account-issuer-discovery",
                        f"--audience={AUDIENCE}",
                        "--token-path=/var/run/checked/token",
                    ],
                    "volumeMounts": [{"name": "checked", "mountPath": "/var/run/checked"}],
                }
            ],
            "volumes": [{"name": "checked", "projected": {"sources": [token]}}],
        },
    }
    cloud.kubectl(clouds, "apply", "-f", "-", stdin=json.dumps(manifest))

    def phase() -> str:
        return cloud.kubectl(clouds, "get", "pod", DISCOVERY, "--output=jsonpath={.status.phase}")

    until("the token is checked", lambda: phase() in ("Succeeded", "Failed"), LONG)
    assert phase() == "Succeeded", cloud.kubectl(clouds, "logs", DISCOVERY)
