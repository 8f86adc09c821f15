"""Runs specs with containers on a real node of `scripts/node`: without a hub, with a hub, and as clients of the hub.

The hub is installed by the commands of docs/install.md, with the default configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.conformance_tests import specs
from scripts.node_machine import cloud, lifecycle
from scripts.node_machine.instances import CLOUD, own
from scripts.node_machine.machine import Machine
from scripts.node_machine.userland import CHECKOUT
from tests.cloud.kubeconfig import write_kubeconfig
from tests.node.support import hub

MODES = ("behind", "through")
"""The modes with a hub on the node: the test client uses the cloud, or the hub as well."""
ADMINISTRATOR = "conformance"
ACCOUNT = ("--namespace=kube-system", "serviceaccount", ADMINISTRATOR)
TLS_PORT = "https://127.0.0.1:10268"
AUTHORITY = "/var/lib/edgehub/pki/ca.crt"


def outcomes(programs: Mapping[str, Path], names: Sequence[str], folder: Path) -> list[dict[str, str]]:
    """Run the specs with `specs.run` without a hub, and in each mode."""
    with lifecycle.running(own()) as instance:
        node, clouds = Machine(instance, "edge-1"), Machine(instance, CLOUD)
        # Clients ask from the node, where the hub's ports are.
        enter = ("nsenter", f"--target={node.pid}", "--net")
        straight = folder / "straight.kubeconfig"
        straight.write_text(clouds.run("cat", cloud.KUBECONFIG))
        direct = specs.run(programs, straight, names, folder / "direct", enter)
        passing = [name for name, why in direct.items() if not why]
        hub.prepare_cluster(clouds)
        cloud.kubectl(clouds, "apply", "-f", f"{CHECKOUT}/controllers/manifests/autonomy.yaml")
        hub.start_manager(clouds)
        hub.install(node)
        try:
            hub.start_pods_anew(clouds, node.name)
            behind = specs.run(programs, straight, passing, folder / "behind", enter)
            through = specs.run(programs, _at_hub(node, clouds, folder), passing, folder / "through", enter)
        finally:
            hub.uninstall(node)
            _remove_administrator(clouds)
    return [direct, behind, through]


def _at_hub(node: Machine, clouds: Machine, folder: Path) -> Path:
    """Write the kubeconfig of an administrator with a token, for the hub."""
    cloud.kubectl(clouds, "create", *ACCOUNT)
    role = ("--clusterrole=cluster-admin", f"--serviceaccount=kube-system:{ADMINISTRATOR}")
    cloud.kubectl(clouds, "create", "clusterrolebinding", ADMINISTRATOR, *role)
    token = cloud.kubectl(
        clouds, "--namespace=kube-system", "create", "token", ADMINISTRATOR, "--duration=24h"
    )
    authority = node.run("cat", AUTHORITY).encode()
    return write_kubeconfig(folder / "through.kubeconfig", TLS_PORT, authority=authority, token=token.strip())


def _remove_administrator(clouds: Machine) -> None:
    cloud.kubectl(clouds, "delete", "--ignore-not-found", *ACCOUNT)
    cloud.kubectl(clouds, "delete", "--ignore-not-found", "clusterrolebinding", ADMINISTRATOR)
