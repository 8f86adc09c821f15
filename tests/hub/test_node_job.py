"""The Job by which the manager puts a node behind its hub, and back: its command line, on a node of kubeadm's shape.

The host's root is another folder here, `nsenter` leads to the machine's systemctl, and a thread stands for kubelet
where it runs static pods.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from controllers.nodes.conversion import Direction, Phase, Stage
from controllers.nodes.node_job import SYSTEMCTL, node_job, termination_message
from kube.http.kubeconfig import load_kubeconfig
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.hollow import is_ready
from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.hub.support.machine import Machine
from tests.hub.support.process import ROOT
from tests.support.worker import Worker

pytestmark = [pytest.mark.real]

LIMIT = 180.0
"""Seconds until a node is Ready; it takes some."""
NSENTER = """\
#!/bin/sh
test "$1 $2 $3 $4 $5" = "--target 1 --mount -- systemctl" || exit 9
shift 5
exec {systemctl} "$@"
"""
EDGEHUB = """\
#!/bin/sh
cd {root} && exec {python} -m addons.command "$@"
"""


class StaticPods(Worker):
    """Runs the hub as long as its manifest is there, as kubelet does. A context manager."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._manifest = machine.root / "etc/kubernetes/manifests/edgehub.yaml"
        self._hub: Process | None = None
        self.image = ""

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._stop()

    def _work(self) -> None:
        while not self._ended.wait(0.1):
            if not self._manifest.exists():
                self._stop()
            elif self._hub is None:
                container = json.loads(self._manifest.read_text())["spec"]["containers"][0]
                self.image = container["image"]
                root = self._machine.root
                words = [f"{root}{word}" if word.startswith("/etc/") else word for word in container["args"]]
                command = [sys.executable, "-m", "addons.command", *words]
                self._hub = Process("hub", command, self._machine.folder)

    def _stop(self) -> None:
        if self._hub is not None:
            self._hub.stop()
            self._hub = None


@pytest.fixture
def machine(
    real_cloud: RealCloud, cloud_programs: dict[str, Path], tmp_path: Path, node: str
) -> Iterator[Machine]:
    """A node that has joined the cloud, without a hub."""
    real_cloud.apply(HUB_RBAC)
    with Machine(tmp_path, real_cloud, real_cloud.url, node, cloud_programs) as made:
        programs = tmp_path / "bin"
        programs.mkdir()
        texts = {
            "nsenter": NSENTER.format(systemctl=made.systemctl),
            "edgehub": EDGEHUB.format(root=ROOT, python=sys.executable),
        }
        for name, text in texts.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        real_cloud.admin.wait_for("/api/v1/nodes", node, is_ready, timeout=LIMIT)
        yield made


def run_job(machine: Machine, direction: Direction) -> subprocess.CompletedProcess[str]:
    """The container's command, with the host's root where the machine's is."""
    now = datetime.now(UTC)
    job = node_job("kube-system", machine.node, Phase(direction, Stage.START, now, now), "edgehub:1")
    container = job["spec"]["template"]["spec"]["containers"][0]
    own = str(machine.folder / "bin" / "systemctl")
    words = [
        str(machine.root) if word == "/host" else word.replace(SYSTEMCTL, own)
        for word in (*container["command"], *container["args"])
    ]
    flags = ["--", *machine.hub_flags] if direction is Direction.INSTALL else []
    environment = {**os.environ, "PATH": f"{machine.folder / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(
        [*words, *flags], env=environment, capture_output=True, text=True, timeout=400, check=False
    )


def test_a_job_puts_a_node_behind_its_hub_and_another_takes_it_back(
    machine: Machine, real_cloud: RealCloud
) -> None:
    before = machine.files()
    with StaticPods(machine) as static_pods:
        done = run_job(machine, Direction.INSTALL)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "restart kubelet.service" in machine.called
        kubeconfig = load_kubeconfig(machine.root / "etc/kubernetes/kubelet.conf")
        assert kubeconfig.server == machine.tls_url
        assert static_pods.image == "edgehub:1"
        real_cloud.admin.wait_for("/api/v1/nodes", machine.node, is_ready, timeout=LIMIT)

        undone = run_job(machine, Direction.UNINSTALL)
        assert undone.returncode == 0, undone.stdout + undone.stderr
    assert machine.files() == before


def test_a_fault_that_the_doctor_finds_changes_nothing_and_is_the_jobs_last_word(machine: Machine) -> None:
    kubeconfig = machine.root / "etc/kubernetes/kubelet.conf"
    kubeconfig.write_text(kubeconfig.read_text().replace("https://", "http://"))
    before = machine.files()
    failed = run_job(machine, Direction.INSTALL)
    assert failed.returncode == 1
    assert machine.files() == before
    assert machine.called == []
    message = {"message": failed.stdout + failed.stderr}
    words = termination_message([{"status": {"containerStatuses": [{"state": {"terminated": message}}]}}])
    assert "failed" in words
    assert "nothing was changed" in words
