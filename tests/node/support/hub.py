"""The hub of a real node and its manager, installed by the commands in the docs."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

from scripts.node_machine import cloud
from scripts.node_machine.commands import until
from scripts.node_machine.instances import ROOT
from scripts.node_machine.machine import Machine
from scripts.node_machine.userland import CHECKOUT, WHEELS
from tests.node.support import hub_image
from tests.node.support.callers import LONG
from tests.support.objects import obj

PAGE = ROOT / "docs" / "install.md"


def blocks(section: str) -> list[str]:
    """Return the blocks of commands below a heading, up to the next heading."""
    _, found, rest = PAGE.read_text().partition(f"\n{section}\n")
    assert found, f"{PAGE.name} has no {section!r}"
    return re.findall(r"^```sh\n(.*?)^```$", re.split(r"\n#+ ", rest)[0], re.MULTILINE | re.DOTALL)


RELEASE = "/srv/release"
OFFLINE = f"export PIP_NO_INDEX=1 PIP_FIND_LINKS={WHEELS} PIP_DISABLE_PIP_VERSION_CHECK=1"
"""The environment of a node without a package index."""
MANAGER = "edgehub-manager.service"
POOL = "labelled"
"""The pool whose nodes get their hubs by a label."""
MANIFEST = "/etc/kubernetes/manifests/edgehub.yaml"
"""The path of the static pod."""


def start_manager(clouds: Machine) -> None:
    """Start the manager, with the controller that installs hubs on labelled nodes."""
    if clouds.try_run("systemctl", "is-active", MANAGER).returncode:
        flags = (f"--kubeconfig={cloud.ADMIN}", "--webhook-port=0", f"--hub-image={hub_image.NAME}")
        manager = ("edgehub-manager", *flags)
        clouds.run("systemd-run", f"--unit={MANAGER}", "--property=Restart=always", *manager)


def prepare_cluster(clouds: Machine) -> None:
    """Apply the manifests that the page applies once per cluster."""
    once, *_ = blocks("## A node of kubeadm")
    clouds.run("sh", "-eux", stdin=f"cd {CHECKOUT}\nexport KUBECONFIG={cloud.ADMIN}\n{once}")


def prepare_pool(clouds: Machine, name: str) -> None:
    """Create a pool that elects a leader, by the page about pools."""
    cloud.kubectl(clouds, "apply", "-f", f"{CHECKOUT}/controllers/manifests/nodepools.yaml")
    cloud.kubectl(clouds, "wait", "--for=condition=Established", "crd/nodepools.apps.openyurt.io")
    pool = obj("NodePool", name, spec={"type": "Edge", "interConnectivity": True})
    cloud.kubectl(clouds, "apply", "-f", "-", stdin=json.dumps(pool))


def install_program(node: Machine, folder: Path) -> None:
    """Build a release, and install its wheel on the node line by line."""
    build: list[str | Path] = [
        sys.executable,
        "-m",
        "scripts.building.release",
        "--no-images",
        "--to",
        folder,
    ]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    for path in (*folder.glob("*.whl"), *folder.glob("edgehub-*-requirements.txt")):
        packed = base64.b64encode(path.read_bytes()).decode()
        node.run("sh", "-euc", f"mkdir -p {RELEASE}; base64 -d >{RELEASE}/$1", "sh", path.name, stdin=packed)
    steps, *_ = blocks("## The program")
    # The node has a program with this name already, which runs from the checkout.
    node.run("sh", "-eux", stdin=f"cd {RELEASE}\n{OFFLINE}\nrm -f /usr/local/bin/edgehub\n{steps}")


def install(node: Machine) -> str:
    """Install the hub by the page's commands; return their output."""
    _, once, *_ = blocks("## A node of kubeadm")
    return node.run("sh", "-eux", stdin=once)


def uninstall(node: Machine) -> str:
    """Uninstall the hub by the page's commands; return their output."""
    (back,) = blocks("### Remove a hub")
    return node.run("sh", "-eux", stdin=back)


def start_pods_anew(clouds: Machine, node: str) -> None:
    """Restart kube-proxy and coredns so that they read from the hub, by the page."""
    _, _, command, *_ = blocks("## A node of kubeadm")
    assert "NODE" in command
    said = f"export KUBECONFIG={cloud.ADMIN}\n{command.replace('NODE', node)}"
    clouds.run("sh", "-eux", stdin=said)
    for each in ("daemonset/kube-proxy", "deployment/coredns"):
        wait = ("--namespace=kube-system", "rollout", "status", each, f"--timeout={LONG:.0f}s")
        cloud.kubectl(clouds, *wait)


def make_autonomous(clouds: Machine, node: str) -> None:
    """Let the pods of a silent node run for any time, by the page about the manager."""
    cloud.kubectl(clouds, "apply", "-f", f"{CHECKOUT}/controllers/manifests/autonomy.yaml")
    cloud.kubectl(clouds, "annotate", "--overwrite", "node", node, "node.openyurt.io/autonomy-duration=0")


def pid(node: Machine) -> str:
    """Return the process ID of the hub."""
    return node.run("systemctl", "show", "edgehub", "--property=MainPID", "--value").strip()


def wait_until_ready(node: Machine) -> None:
    """Wait until the hub reports that it is ready."""
    asked = ("curl", "--silent", "--fail", "--max-time", "5", "http://127.0.0.1:10267/readyz")
    until("the hub is ready", lambda: node.try_run(*asked).returncode == 0, LONG)


def has_heard_kubelet(node: Machine) -> bool:
    """Whether kubelet has renewed its Lease since the hub's start."""
    page = node.try_run("curl", "--silent", "--max-time", "5", "http://127.0.0.1:10267/metrics").stdout
    wanted = ("edgehub_requests_total{", 'component="kubelet"', 'resource="leases"', 'code="200"')
    return any(
        all(each in line for each in wanted) and not line.endswith(" 0.0") for line in page.splitlines()
    )
