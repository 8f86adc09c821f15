"""A kubeadm-like node that runs the machine's systemd in separate namespaces, with the hub's wheel."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Self

import yaml

from scripts.building.release import build_packages
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.ports import LOOPBACK
from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.deploy.support.boot import SYSTEMD
from tests.hub.support.process import ROOT, SLACK
from tests.support.polling import eventually
from tests.support.relay import end, file_listener, relay

PROXY = "/lib/systemd/systemd-socket-proxyd"
"""A program that forwards connections: the cloud is at port 6443 of the node's loopback."""
NAMESPACES = ("--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup")
TOOLS = ("setpriv", "unshare", "nsenter", "pivot_root", "systemctl", "ip")
HERE, PACKAGES, PROGRAMS = "/srv/test", "/srv/packages", "/srv/programs"
"""Paths on the node: the test's folder, the hub's dependencies, and the programs of Kubernetes."""
PROGRAM, PYTHON = "/opt/edgehub/bin/edgehub", "/opt/edgehub/bin/python"
"""Paths on the node: the installed command, and its environment's interpreter."""
SERVER = f"https://{LOOPBACK}:6443"
PROBE = """\
set -e
cd $1
mount -t tmpfs tmpfs .
cd $1
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
ip link add node0 type veth peer name nowhere0
"""
"""Commands that the kernel must allow, in namespaces that end with them."""
UNITS = {
    "cloud.socket": f"[Socket]\nListenStream={LOOPBACK}:6443\n",
    "cloud.service": f"[Service]\nExecStart={PROXY} {HERE}/cloud.socket\n",
    # kubemark writes below /tmp, and there is no container runtime with images on the host.
    "kubelet.service": "[Service]\nPrivateTmp=yes\nExecStart={programs}/kubemark --morph=kubelet --name={node}"
    " --kubeconfig=/etc/kubernetes/kubelet.conf --use-host-image-service=false"
    " --kubelet-port=0 --kubelet-read-only-port=0\n",
}


def unified_cgroups() -> Path | None:
    """Return the mount point of cgroup2."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount_point, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(mount_point)
    return None


def why_not() -> str:
    """Return why systemd cannot run here; "" if it can."""
    missing = [name for name in TOOLS if shutil.which(name) is None]
    missing += [path for path in (SYSTEMD, PROXY) if not Path(path).exists()]
    if missing:
        return f"{', '.join(missing)} not found (Debian: systemd, util-linux, iproute2)"
    if os.geteuid() != 0:
        return "root alone starts a systemd of its own"
    if unified_cgroups() is None:
        return "no cgroup2 is mounted"
    with tempfile.TemporaryDirectory() as folder:
        tried = ["unshare", "--mount", "--net", "sh", "-c", PROBE, "sh", folder]
        return subprocess.run(tried, capture_output=True, text=True, check=False).stderr.strip()


class BootedNode:
    """A node whose systemd runs while the context is open. All its changes except those in `folder` are in memory."""

    def __init__(
        self,
        folder: Path,
        cloud: RealCloud,
        node: str,
        programs: Mapping[str, Path],
        wheel: Path | None = None,
    ) -> None:
        """`wheel` is an existing wheel, shared by several nodes."""
        self.folder, self.node = folder, node
        self._wheel = wheel
        self._cloud, self._programs = cloud, programs["kubemark"].parent
        mount_point = unified_cgroups()
        assert mount_point is not None
        self._cgroup = mount_point / f"edgehub-test-{os.getpid()}-{node}"
        self._boot: Process | None = None
        self._listener: socket.socket | None = None
        self.delay = 0.0
        """Seconds by which the link to the cloud delays each chunk."""

    def __enter__(self) -> Self:
        if self._wheel is not None:
            shutil.copy(self._wheel, self.folder)
        else:
            build_packages(self.folder)
        self._listener = file_listener(self.folder / "cloud.socket")
        relay(
            self._listener,
            lambda: socket.create_connection((self._cloud.host, self._cloud.port)),
            lambda: self.delay,
        )
        self._cgroup.mkdir()
        targets = {self.folder: HERE, sysconfig.get_path("purelib"): PACKAGES, self._programs: PROGRAMS}
        shared = [f"{outside}={inside}" for outside, inside in targets.items()]
        boot = [sys.executable, "-m", "tests.deploy.support.boot", str(self.folder), *shared]
        into_cgroup = ["sh", "-c", f'echo $$ > {self._cgroup}/cgroup.procs; exec "$@"', "sh"]
        # The node ends with the process that started it, even if that is killed.
        apart = ["setpriv", "--pdeathsig=KILL", "unshare", *NAMESPACES, "--fork", "--kill-child=SIGKILL"]
        self._boot = Process("systemd", [*into_cgroup, *apart, *boot], self.folder, {"PYTHONPATH": str(ROOT)})
        try:
            self._wait_until_up()
            self._lay_out()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._boot is not None:
            self._boot.kill()
        if self._listener is not None:
            end(self._listener)
        self._remove_cgroups()

    def run(self, *command: str | Path, check: bool = True) -> str:
        """Run a command on the node; return its output; AssertionError with the complete output if it fails."""
        done = subprocess.run(
            [*self.enter, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}{self.journal()}"
        return done.stdout

    @property
    def enter(self) -> list[str]:
        """Return the prefix of commands that run on the node."""
        return ["nsenter", f"--target={self._pid}", "--all", "--wd"]

    def until(self, check: Callable[[], object]) -> None:
        """Poll until the condition holds: no event reports it."""
        deadline = time.monotonic() + 2 * SLACK
        while not check():
            assert time.monotonic() < deadline, self.journal()
            time.sleep(0.1)

    def metric(self, series: str) -> float:
        """Return a value in the hub's metrics, from the line that starts with this name."""
        script = (
            "import urllib.request as it; print(it.urlopen('http://127.0.0.1:10267/metrics').read().decode())"
        )
        page = self.run(PYTHON, "-c", script, check=False)
        found = [each for each in page.splitlines() if each.startswith(series)]
        return float(found[0].removeprefix(series)) if found else math.nan

    def systemctl(self, *arguments: str) -> str:
        return self.run("systemctl", *arguments)

    def shown(self, unit: str, *properties: str) -> dict[str, str]:
        lines = self.systemctl("show", unit, f"--property={','.join(properties)}").splitlines()
        return dict(each.split("=", 1) for each in lines)

    def journal(self) -> str:
        return self.run("journalctl", "--no-pager", "--lines=60", check=False)

    def write(self, path: str, data: bytes) -> None:
        (self._root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (self._root / path.lstrip("/")).write_bytes(data)

    @property
    def _pid(self) -> int:
        """Return the PID of the node's systemd on the machine."""
        assert self._boot is not None
        children = Path(f"/proc/{self._boot.pid}/task/{self._boot.pid}/children").read_text().split()
        return int(children[0])

    @property
    def _root(self) -> Path:
        return Path(f"/proc/{self._pid}/root")

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + SLACK
        while True:
            try:
                if self.run("systemctl", "is-system-running", check=False).strip() in {"running", "degraded"}:
                    return
            except IndexError:
                pass  # unshare has not started yet
            assert self._boot is not None
            assert self._boot.running, self._boot.failure("did not start")
            assert time.monotonic() < deadline, self._boot.failure("did not come up")
            time.sleep(0.1)

    def _lay_out(self) -> None:
        """Write the files of a kubeadm node, its kubelet, and the hub's program in a separate environment."""
        authority = self._cloud.authority
        self.rotate(1)
        kubelet = write_kubeconfig(self.folder / "kubelet.conf", SERVER, authority=authority.certificate)
        document = yaml.safe_load(kubelet.read_text())
        current = "/var/lib/kubelet/pki/kubelet-client-current.pem"
        document["users"][0]["user"] = {"client-certificate": current, "client-key": current}
        self.write("/etc/kubernetes/kubelet.conf", yaml.safe_dump(document).encode())
        for name, text in UNITS.items():
            filled = text.format(programs=PROGRAMS, node=self.node)
            self.write(f"/etc/systemd/system/{name}", filled.encode())
        self.systemctl("daemon-reload")
        self.systemctl("start", "cloud.socket", "kubelet.service")
        self._install_program()

    def rotate(self, number: int, lifetime: timedelta = timedelta(days=1)) -> None:
        """Rotate the node's certificate like kubelet: write a new file, and point a link at it."""
        issued = self._cloud.authority.issue_node(self.node, lifetime)
        name = f"kubelet-client-{number}.pem"
        self.write(f"/var/lib/kubelet/pki/{name}", issued.certificate + issued.key)
        self.run("ln", "-sfn", name, "/var/lib/kubelet/pki/kubelet-client-current.pem")

    def _install_program(self) -> None:
        (wheel,) = self.folder.glob("*.whl")
        home = Path(PROGRAM).parents[1]
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        python = Path(sys.base_prefix) / "bin" / version
        self.run(python, "-I", "-m", "venv", "--without-pip", home)
        pip: list[str | Path] = [
            "env",
            f"PYTHONPATH={PACKAGES}",
            python,
            "-m",
            "pip",
            "--python",
            f"{home}/bin/python",
        ]
        self.run(*pip, "install", "-q", "--no-index", "--no-deps", f"{HERE}/{wheel.name}")
        self.write(f"{home}/lib/{version}/site-packages/dependencies.pth", f"{PACKAGES}\n".encode())

    def _remove_cgroups(self) -> None:
        def removed() -> bool:
            for folder, _, _ in self._cgroup.walk(top_down=False):
                with contextlib.suppress(OSError):  # killed processes end shortly after
                    folder.rmdir()
            return not self._cgroup.exists()

        eventually(removed, f"{self._cgroup} is removed", SLACK)
