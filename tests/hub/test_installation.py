"""A kubeadm node gets a hub by one command, and loses it by another one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from addons.install.services.system_services import static_pod
from kube.fleet import ANNOTATION, LEASES
from kube.http.kubeconfig import load_kubeconfig
from tests.cloud.hollow import is_ready
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.machine import LIMIT, Machine, edgehub
from tests.support.polling import eventually


def test_install_and_uninstall_switch_a_running_node_to_its_hub_and_back(
    machine: Machine, real_cloud: RealCloud, to_cloud: Link, tmp_path: Path
) -> None:
    def asked(path: str) -> int:
        """Return the status of the hub's response to kubelet."""
        return urllib3.request(
            "GET", machine.url + path, headers={"User-Agent": "kubelet/v1"}, retries=False
        ).status

    services = ("--systemctl", str(machine.systemctl))
    before = machine.files()
    rehearsed = edgehub(machine, "install", "--dry-run", hub=True)
    assert rehearsed.returncode == 0, rehearsed.stderr
    for wanted in ("+++ /etc/kubernetes/edgehub.conf", f"+    server: {machine.url}", "+ExecStart="):
        assert wanted in rehearsed.stdout
    assert machine.files() == before

    # The kubeconfigs already point at the hub, but kubelet has not restarted.
    machine.ends = {"restart kubelet.service": signal.SIGKILL}
    killed = edgehub(machine, "install", *services, "--timeout", str(LIMIT), hub=True)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    done = edgehub(machine, "install", *services, "--timeout", str(LIMIT), hub=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{machine.node} is behind its hub" in done.stdout
    kubernetes = machine.root / "etc/kubernetes"
    assert load_kubeconfig(kubernetes / "kubelet.conf").cluster.server == machine.tls_url
    assert load_kubeconfig(machine.root / "var/lib/kube-proxy/kubeconfig.conf").cluster.server == machine.url
    assert (
        load_kubeconfig(kubernetes / "edgehub.conf").cluster.server
        == f"https://{to_cloud.host}:{to_cloud.port}"
    )

    calls = list(machine.called)
    again = edgehub(machine, "install", *services, hub=True)
    assert again.returncode == 0, again.stdout + again.stderr
    assert machine.called == calls, "nothing is to be done"

    node = f"/api/v1/nodes/{machine.node}"
    assert asked(node) == 200
    to_cloud.refuse()
    eventually(lambda: asked(node) == 200, "the node's own copy answers while the cloud is away", LIMIT)
    to_cloud.carry()

    hub = machine.pid("edgehub.service")
    elsewhere = tmp_path / "edgehub"
    elsewhere.symlink_to(Path(sys.executable).with_name("edgehub"))
    upgraded = edgehub(machine, "upgrade", *services, "--timeout", str(LIMIT), "--program", str(elsewhere))
    assert upgraded.returncode == 0, upgraded.stdout + upgraded.stderr
    assert machine.pid("edgehub.service") != hub
    assert str(elsewhere) in (machine.root / "etc/systemd/system/edgehub.service").read_text()
    assert asked(node) == 200

    lease = f"{LEASES}/{machine.node}"
    real_cloud.admin.patch(lease, {"metadata": {"annotations": {ANNOTATION: "{}"}}})
    machine.ends = {"restart kubelet.service": signal.SIGKILL}
    assert edgehub(machine, "uninstall", *services).returncode == -signal.SIGKILL
    undone = edgehub(machine, "uninstall", *services)
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert machine.files() == before
    real_cloud.admin.wait_for("/api/v1/nodes", machine.node, is_ready, timeout=LIMIT)
    assert ANNOTATION not in real_cloud.admin.get(lease)["metadata"].get("annotations", {})


@pytest.fixture
def hung_up() -> Iterator[None]:
    """Reset the SIGHUP handler, so that the test's programs end with their terminal even under `nohup`."""
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, former)


@pytest.mark.usefixtures("hung_up")
def test_an_interrupted_installation_is_undone(machine: Machine) -> None:
    before = machine.files()
    services = ("--systemctl", str(machine.systemctl), "--timeout", str(LIMIT))
    # Ended by a service manager, before the hub runs; by a lost connection, when the kubeconfigs point at the hub.
    for step, ending in (
        ("start --no-block edgehub.service", signal.SIGTERM),
        ("restart kubelet.service", signal.SIGHUP),
    ):
        machine.ends = {step: ending}
        interrupted = edgehub(machine, "install", *services, hub=True)
        assert interrupted.returncode == 1
        assert "edgehub install: interrupted; everything is as it was" in interrupted.stderr
        assert machine.files() == before, step


def test_the_doctor_finds_a_healthy_node_and_names_a_missing_manifest(
    machine: Machine, real_cloud: RealCloud
) -> None:
    well = edgehub(machine, "doctor", hub=True)
    assert well.returncode == 0, well.stdout + well.stderr
    for line in (
        "ok       clock",
        "ok       rights",
        "ok       identity",
        f"ok       node         {machine.node}",
    ):
        assert line in well.stdout
    stranger = real_cloud.kubeconfig("stranger", real_cloud.authority.issue_client("system:node:stranger"))
    (machine.root / "etc/kubernetes/stranger.conf").write_bytes(stranger.read_bytes())
    ill = edgehub(machine, "doctor", "--kubeconfig", "/etc/kubernetes/stranger.conf", hub=True)
    assert ill.returncode == 1
    assert "kubectl apply -f controllers/manifests/hub-rbac.yaml" in ill.stdout


def test_the_api_server_accepts_the_static_pods_mirror(real_cloud: RealCloud, tmp_path: Path) -> None:
    real_cloud.token(
        "kube-system", "default"
    )  # no controller creates the service account here, and a mirror pod needs none
    pod = tmp_path / "edgehub.yaml"
    pod.write_text(
        static_pod("edgehub:1", ["--node", "n1"], "/etc/kubernetes/edgehub.conf", ("127.0.0.1", 10267))
    )
    done = real_cloud.kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(pod))
    assert "pod/edgehub created (server dry run)" in done.stdout
