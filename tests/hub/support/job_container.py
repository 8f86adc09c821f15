"""The container of a node's Job as a process, and the static pods of the node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from controllers.nodes.node_job import SYSTEMCTL
from kube.json_type import Json
from tests.cloud.processes import Process
from tests.hub.support.machine import Machine
from tests.hub.support.process import ROOT
from tests.support.worker import Worker

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
"""An image whose program becomes ready, and ends some seconds later."""
DELAY = 2.0
"""Seconds until a changed manifest takes effect: kubelet polls its folder."""


class StaticPods(Worker):
    """Run the hub in the current manifest, and the guard of an upgrade, like kubelet. A context manager."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._manifest = machine.root / "etc/kubernetes/manifests/edgehub.yaml"
        self._guard_manifest = self._manifest.with_name("edgehub-upgrade.yaml")
        self._hub: Process | None = None
        self.guard: Process | None = None
        """The last process of the guard."""
        self._text = ""
        self.broken = {BROKEN}
        """The images whose program ends at once."""
        self.packages: dict[str, Path] = {}
        """The package folders of images with another version than this checkout."""
        self.images: list[str] = []
        """The images that ran, in order."""

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._stop()
        self._stop_guard()

    @property
    def hub(self) -> Process:
        assert self._hub is not None
        return self._hub

    def _work(self) -> None:
        while not self._ended.wait(0.1):
            self._follow_guard()
            text = self._manifest.read_text() if self._manifest.exists() else ""
            if text != self._text:
                self._ended.wait(DELAY if self._text else 0.0)
                self._stop()
                self._text = text
            if text and (self._hub is None or not self._hub.running):
                self._start()

    def _follow_guard(self) -> None:
        if not self._guard_manifest.exists():
            self._stop_guard()
        elif self.guard is None or not self.guard.running:
            container = json.loads(self._guard_manifest.read_text())["spec"]["containers"][0]
            arguments = [argument.replace("/host", str(self._machine.root)) for argument in container["args"]]
            self.guard = Process(
                "guard",
                [sys.executable, "-m", "addons.command", *arguments],
                self._machine.folder,
                path_of(self._machine),
            )

    def _stop_guard(self) -> None:
        if self.guard is not None and self.guard.running:
            self.guard.stop()

    def _start(self) -> None:
        manifest = json.loads(self._text)
        container = manifest["spec"]["containers"][0]
        image = container["image"]
        self._begin_log(manifest["metadata"]["uid"])
        root = self._machine.root
        arguments = [f"{root}{each}" if each.startswith("/etc/") else each for each in container["args"]]
        command = [sys.executable, "-m", "addons.command", *arguments]
        if image in self.broken:
            command = [sys.executable, "-c", "raise SystemExit('this version is broken')"]
        elif image == FOR_A_WHILE:
            command = ["timeout", "--signal=KILL", "12", *command]
        packages = self.packages.get(image)
        env = {"PYTHONPATH": str(packages)} if packages is not None else {}
        self._hub = Process("hub", command, self._machine.folder, env)
        if self.images[-1:] != [image]:
            self.images.append(image)

    def _begin_log(self, uid: str) -> None:
        """Start a container's log, or continue the log of one that ended by itself."""
        pods = self._machine.root / "var/log/pods"
        logs = pods / f"kube-system_edgehub-{self._machine.node}_{uid}" / "edgehub"
        logs.mkdir(parents=True, exist_ok=True)
        restarts = len([*logs.iterdir()])
        if self._hub is not None:
            lines = "".join(f"2026-01-02T12:00:00Z stderr F {line}\n" for line in self._hub.lines)
            (logs / f"{restarts - 1}.log").write_text(lines)
        (logs / f"{restarts}.log").touch()

    def _stop(self) -> None:
        if self._hub is not None:
            self._hub.stop()
            self._hub = None


def lay_programs(machine: Machine) -> None:
    """Write the container's programs: `edgehub` of this checkout, and an `nsenter` into the machine."""
    programs = machine.folder / "bin"
    programs.mkdir()
    texts = {
        "nsenter": NSENTER.format(systemctl=machine.systemctl),
        "edgehub": EDGEHUB.format(root=ROOT, python=sys.executable),
    }
    for name, text in texts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)


def container_command(pod_spec: Json, machine: Machine, *more: str) -> tuple[list[str], dict[str, str]]:
    """Return the arguments and the environment of a Job's container, with the host's root at the machine's."""
    container = pod_spec["containers"][0]
    own = str(machine.folder / "bin" / "systemctl")
    arguments = [
        argument.replace("/host", str(machine.root)).replace(SYSTEMCTL, own)
        for argument in (*container["command"], *container["args"])
    ]
    flags = ["--", *machine.hub_flags] if container["args"][0] == "install" else []
    return [*arguments, *more, *flags], {**os.environ, **path_of(machine)}


def path_of(machine: Machine) -> dict[str, str]:
    """The variable by which a container finds the programs of `lay_programs`."""
    return {"PATH": f"{machine.folder / 'bin'}:{os.environ['PATH']}"}


def run_container(pod_spec: Json, machine: Machine, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a Job's container to its end."""
    arguments, environment = container_command(pod_spec, machine, *more)
    return subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
