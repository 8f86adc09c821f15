"""The Jobs of the duty `nodes`, which put a node behind its hub, upgrade the hub, and take the node back: their command
lines, on a node of kubeadm's shape.

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

from addons.startup.rollback import read_rollback
from controllers.nodes.conversion import Direction, Phase, Stage
from controllers.nodes.node_job import SYSTEMCTL, node_job, termination_message
from kube.http.kubeconfig import load_kubeconfig
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.hollow import is_ready
from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.hub.support.machine import LIMIT, Machine
from tests.hub.support.process import ROOT
from tests.support.worker import Worker

pytestmark = [pytest.mark.real]

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


BROKEN = "edgehub:broken"
"""An image whose program ends at once."""
FOR_A_WHILE = "edgehub:for-a-while"
"""An image whose program is ready, and ends some seconds later."""
DELAY = 2.0
"""Seconds in which a changed manifest changes nothing: kubelet looks now and then."""


class StaticPods(Worker):
    """Runs the hub of the manifest that is there, as kubelet does. A context manager."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._manifest = machine.root / "etc/kubernetes/manifests/edgehub.yaml"
        self._hub: Process | None = None
        self._text = ""
        self.images: list[str] = []
        """The images that ran, one after another."""

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._stop()

    def _work(self) -> None:
        while not self._ended.wait(0.1):
            text = self._manifest.read_text() if self._manifest.exists() else ""
            if text != self._text:
                self._ended.wait(DELAY if self._text else 0.0)
                self._stop()
                self._text = text
            if text and (self._hub is None or not self._hub.running):
                self._start()

    def _start(self) -> None:
        container = json.loads(self._text)["spec"]["containers"][0]
        image = container["image"]
        if self.images[-1:] != [image]:
            self.images.append(image)
        root = self._machine.root
        arguments = [f"{root}{each}" if each.startswith("/etc/") else each for each in container["args"]]
        command = [sys.executable, "-m", "addons.command", *arguments]
        if image == BROKEN:
            command = [sys.executable, "-c", "raise SystemExit('this version is broken')"]
        elif image == FOR_A_WHILE:
            command = ["timeout", "--signal=KILL", "12", *command]
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


def run_job(
    machine: Machine, direction: Direction, version: str = "", *more: str
) -> subprocess.CompletedProcess[str]:
    """The container's command, with the host's root where the machine's is, and with `more` flags."""
    now = datetime.now(UTC)
    phase = Phase(direction, Stage.START, now, now, version)
    job = node_job("kube-system", machine.node, phase, f"edgehub:{version or 1}")
    container = job["spec"]["template"]["spec"]["containers"][0]
    own = str(machine.folder / "bin" / "systemctl")
    arguments = [
        str(machine.root) if each == "/host" else each.replace(SYSTEMCTL, own)
        for each in (*container["command"], *container["args"])
    ]
    flags = ["--", *machine.hub_flags] if direction is Direction.INSTALL else []
    environment = {**os.environ, "PATH": f"{machine.folder / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(
        [*arguments, *more, *flags], env=environment, capture_output=True, text=True, timeout=400, check=False
    )


def test_jobs_put_a_node_behind_its_hub_upgrade_it_and_take_it_back(
    machine: Machine, real_cloud: RealCloud
) -> None:
    before = machine.files()
    with StaticPods(machine) as static_pods:
        done = run_job(machine, Direction.INSTALL)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "restart kubelet.service" in machine.called
        kubeconfig = load_kubeconfig(machine.root / "etc/kubernetes/kubelet.conf")
        assert kubeconfig.server == machine.tls_url
        assert static_pods.images == ["edgehub:1"]
        real_cloud.admin.wait_for("/api/v1/nodes", machine.node, is_ready, timeout=LIMIT)

        check_that_bad_versions_roll_back(machine, static_pods)
        upgraded = run_job(machine, Direction.UPGRADE, "2", "--healthy", "3")
        assert upgraded.returncode == 0, upgraded.stdout + upgraded.stderr
        assert static_pods.images[-1] == "edgehub:2", "the former hub was not taken for the new one"
        assert read_rollback(machine.state) == ""

        undone = run_job(machine, Direction.UNINSTALL)
        assert undone.returncode == 0, undone.stdout + undone.stderr
    assert machine.files() == before


def check_that_bad_versions_roll_back(machine: Machine, static_pods: StaticPods) -> None:
    """Each leaves the files as they were, the former hub running, and the reason for the fleet."""
    installed = machine.files()
    for image, flags, why in (
        (BROKEN, ("--timeout", "15"), "the hub does not answer"),
        (FOR_A_WHILE, ("--healthy", "60"), "the hub "),
    ):
        failed = run_job(machine, Direction.UPGRADE, image.removeprefix("edgehub:"), *flags)
        assert failed.returncode == 1
        assert why in failed.stderr
        assert "the former program runs again" in failed.stderr, failed.stderr
        assert machine.files() == installed
        assert static_pods.images[-2:] == [image, "edgehub:1"]
        assert read_rollback(machine.state).startswith(f"{image}: {why}")


def test_a_fault_that_the_doctor_finds_changes_nothing_and_is_the_jobs_last_word(machine: Machine) -> None:
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
