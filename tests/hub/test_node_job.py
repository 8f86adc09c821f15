"""The Jobs of the controller `nodes`, which install, upgrade and remove a node's hub: their command lines, on a kubeadm
node. The host's root is a folder here, `nsenter` calls the machine's systemctl, and a thread replaces kubelet for
static pods."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from addons.startup.rollback import read_rollback
from controllers.nodes.conversion import Direction, Phase, Stage
from controllers.nodes.node_job import node_job, termination_message
from kube.http.kubeconfig import load_kubeconfig
from kube.json_type import Json
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.hollow import is_ready
from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.hub.support.job_container import (
    BROKEN,
    FOR_A_WHILE,
    StaticPods,
    container_command,
    lay_programs,
    run_container,
)
from tests.hub.support.machine import LIMIT, Machine, edgehub
from tests.support.polling import eventually

pytestmark = [pytest.mark.real]


@pytest.fixture
def machine(
    real_cloud: RealCloud, cloud_programs: dict[str, Path], tmp_path: Path, node: str
) -> Iterator[Machine]:
    """Return a node that has joined the cloud, without a hub."""
    real_cloud.apply(HUB_RBAC)
    with Machine(tmp_path, real_cloud, real_cloud.url, node, cloud_programs) as made:
        lay_programs(made)
        real_cloud.admin.wait_for("/api/v1/nodes", node, is_ready, timeout=LIMIT)
        yield made


def run_job(
    machine: Machine, direction: Direction, version: str = "", *more: str
) -> subprocess.CompletedProcess[str]:
    return run_container(pod_spec(machine, direction, version), machine, *more)


def pod_spec(machine: Machine, direction: Direction, version: str = "") -> Json:
    """Return the spec of the pod of a round's Job."""
    now = datetime.now(UTC)
    phase = Phase(direction, Stage.START, now, now, version)
    spec: Json = node_job("kube-system", machine.node, phase, f"edgehub:{version or 1}")["spec"]
    return dict(spec["template"]["spec"])


def test_jobs_install_upgrade_and_remove_a_nodes_hub(machine: Machine, real_cloud: RealCloud) -> None:
    def check_that_bad_versions_roll_back(static_pods: StaticPods) -> None:
        """Check that each bad version leaves the files unchanged, the previous hub running, and a reason in the
        fleet's table."""
        installed = machine.files()
        for image, flags, why in (
            (BROKEN, (), "the hub does not answer"),
            (FOR_A_WHILE, ("--healthy", "60"), "the hub "),
        ):
            failed = run_job(machine, Direction.UPGRADE, image.removeprefix("edgehub:"), *flags)
            assert failed.returncode == 1
            assert why in failed.stderr
            assert ("this version is broken" in failed.stderr) is (image == BROKEN), "its last lines"
            assert "the previous hub runs again" in failed.stderr, failed.stderr
            assert machine.files() == installed
            assert static_pods.images[-2:] == [image, "edgehub:1"]
            assert read_rollback(machine.state).startswith(f"{image}: {why}")

    before = machine.files()
    with StaticPods(machine) as static_pods:
        done = run_job(machine, Direction.INSTALL)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "restart kubelet.service" in machine.called
        kubeconfig = load_kubeconfig(machine.root / "etc/kubernetes/kubelet.conf")
        assert kubeconfig.cluster.server == machine.tls_url
        assert static_pods.images == ["edgehub:1"]
        real_cloud.admin.wait_for("/api/v1/nodes", machine.node, is_ready, timeout=LIMIT)

        check_that_bad_versions_roll_back(static_pods)
        upgraded = run_job(machine, Direction.UPGRADE, "2", "--healthy", "3")
        assert upgraded.returncode == 0, upgraded.stdout + upgraded.stderr
        assert static_pods.images[-1] == "edgehub:2", "the previous hub was not taken for the new one"
        assert read_rollback(machine.state) == ""

        undone = run_job(machine, Direction.UNINSTALL)
        assert undone.returncode == 0, undone.stdout + undone.stderr
    assert machine.files() == before


def test_an_error_found_by_the_doctor_is_the_termination_message_and_changes_nothing(
    machine: Machine,
) -> None:
    kubeconfig = machine.root / "etc/kubernetes/kubelet.conf"
    kubeconfig.write_text(kubeconfig.read_text().replace("https://", "http://"))
    before = machine.files()
    failed = run_job(machine, Direction.INSTALL)
    assert failed.returncode == 1
    assert machine.files() == before
    assert machine.called == []
    message = {"message": failed.stdout + failed.stderr}
    arguments = termination_message([{"status": {"containerStatuses": [{"state": {"terminated": message}}]}}])
    assert "failed" in arguments
    assert "nothing was changed" in arguments


def test_a_hub_just_installed_by_a_user_is_not_changed(machine: Machine) -> None:
    services = ("--systemctl", str(machine.systemctl), "--timeout", str(LIMIT))
    by_hand = edgehub(machine, "install", *services, hub=True)
    assert by_hand.returncode == 0, by_hand.stdout + by_hand.stderr
    before, called = machine.files(), list(machine.called)
    done = run_job(machine, Direction.INSTALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert machine.files() == before
    assert machine.called == called


def test_a_killed_upgrade_of_a_static_pod_is_rolled_back(machine: Machine) -> None:
    with StaticPods(machine) as static_pods:
        done = run_job(machine, Direction.INSTALL)
        assert done.returncode == 0, done.stdout + done.stderr
        before = machine.files()
        arguments, env = container_command(
            pod_spec(machine, Direction.UPGRADE, "2"), machine, "--healthy", "600"
        )
        job = Process("job", arguments, machine.folder, env)
        job.wait_for_line("watching the hub", LIMIT)
        former = static_pods.hub.pid
        job.kill()
        assert static_pods.guard is not None, "kubelet runs it beside the upgrade"
        static_pods.guard.wait_for_line("`edgehub` was killed", LIMIT)
        eventually(lambda: machine.files() == before, "byte for byte, the ledger too")
        eventually(
            lambda: static_pods.images[-1] == "edgehub:1" and static_pods.hub.pid != former,
            "the former image runs",
        )
        assert read_rollback(machine.state) == "edgehub:2: `edgehub` was killed"
