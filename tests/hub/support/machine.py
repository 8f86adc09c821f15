"""A node as kubeadm installs it, below a folder: its files, its services, and a systemctl for these only."""

from __future__ import annotations

import os
import shlex
import signal
import socketserver
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import yaml

from addons.install.services.system_services import GUARD_UNIT
from tests.cloud.hollow import HollowKubelet, HollowProxy
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.ports import free_port
from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.hub.support.process import ROOT
from tests.support.server_thread import ServerThread

LIMIT = 180.0
"""Seconds until a node is Ready, with or without its hub; several, more on a busy machine."""
SYSTEMCTL = """\
#!{python} -I
import os, socket, sys
with socket.socket(socket.AF_UNIX) as machine:
    machine.connect({address!r})
    machine.sendall(" ".join([str(os.getppid()), *sys.argv[1:]]).encode() + b"\\n")
    said = machine.makefile().read()
sys.exit(said or 0)
"""
"""A program that passes its arguments and its caller to the test, and prints the test's response as its error."""


class Machine:
    """A node as a context manager. kubelet and kube-proxy are hollow; the hub is started by the unit's command line."""

    def __init__(
        self,
        folder: Path,
        cloud: RealCloud,
        server: str,
        node: str,
        programs: Mapping[str, Path],
        *,
        has_joined: bool = True,
    ) -> None:
        """`server` is the cloud's URL in the node's kubeconfigs. A node that has not joined has none."""
        self.folder, self.root, self.node = folder, folder / "root", node
        self.state = self.root / "var/lib/edgehub"
        """The hub's state folder, which an installation does not change."""
        self.called: list[str] = []
        """The arguments of each call of systemctl."""
        self.ends: dict[str, signal.Signals] = {}
        """Calls of systemctl that fail once, with the signal that ends the caller."""
        self.kubelet_service, self.kubelet_kubeconfig = "kubelet.service", "etc/kubernetes/kubelet.conf"
        """The service and kubeconfig of kubelet; other distributions have others."""
        self.ports = {name: free_port() for name in ("port", "tls-port", "admin-port")}
        self._programs = programs
        self._services: dict[str, Process | HollowKubelet | HollowProxy] = {}
        self._enabled: set[str] = set()
        self._has_joined = has_joined
        # The programs run without a separate root, so kubeconfigs name files by the test's paths.
        itself = self.root / self.root.relative_to("/")
        itself.parent.mkdir(parents=True)
        itself.symlink_to("/")
        if has_joined:
            self._lay_out(cloud, server)
        else:
            (self.root / "etc/kubernetes/manifests").mkdir(parents=True)
        self.systemctl = folder / "systemctl"
        address = str(folder / "systemctl.socket")
        self.systemctl.write_text(SYSTEMCTL.format(python=sys.executable, address=address))
        self.systemctl.chmod(0o755)
        machine = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                caller, *arguments = self.rfile.readline().decode().split()
                if (ending := machine.ends.pop(" ".join(arguments), None)) is not None:
                    os.kill(int(caller), ending)
                    return
                self.wfile.write(machine._call(arguments).encode())

        self._served = ServerThread(socketserver.UnixStreamServer(address, Handler))

    def __enter__(self) -> Self:
        self._served.__enter__()
        for name in (self.kubelet_service, "kube-proxy.service") if self._has_joined else ():
            self._start(name)
        return self

    def __exit__(self, *ending: object) -> None:
        self._served.__exit__(*ending)
        for name in list(self._services):
            self._stop(name)

    @property
    def url(self) -> str:
        """Return the URL of the hub's plain port."""
        return f"http://127.0.0.1:{self.ports['port']}"

    @property
    def tls_url(self) -> str:
        """Return the URL of the hub's TLS port, which a kubelet with a certificate calls."""
        return f"https://127.0.0.1:{self.ports['tls-port']}"

    @property
    def hub_flags(self) -> list[str]:
        """Return the flags of the hub in the installation."""
        ports = [argument for name, port in self.ports.items() for argument in (f"--{name}", str(port))]
        # A pod address would be added to the machine that runs the tests.
        own = ["--peer-port", "0", "--pod-address", "127.0.0.1"]
        return [*ports, *own, "--state-dir", str(self.state), "--wait", "60"]

    def files(self) -> dict[str, tuple[int, bytes]]:
        """Return each file below the root except the hub's state and pods' logs, with its mode."""
        left_out = self.state, self.root / "var/log"
        return {
            str(path.relative_to(self.root)): (path.stat().st_mode, path.read_bytes())
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not any(path.is_relative_to(folder) for folder in left_out)
        }

    def start_kubelet(self) -> None:
        """Start kubelet on a node whose files the test has written."""
        self._start(self.kubelet_service)

    def process(self, service: str) -> Process:
        """Return the process of the hub, or of the guard of an upgrade; KeyError if it was not started."""
        found = self._services[service]
        assert isinstance(found, Process)
        return found

    def boot(self, service: str) -> None:
        """Start a unit as systemd does at boot; AssertionError for a unit that is not enabled."""
        assert service in self._enabled
        self._start(service)

    def pid(self, service: str) -> int:
        found = self._services[service]
        return found.pid if isinstance(found, Process) else found.process.pid

    def _lay_out(self, cloud: RealCloud, server: str) -> None:
        kubernetes, pki = self.root / "etc/kubernetes", self.root / "var/lib/kubelet/pki"
        for each in (kubernetes / "manifests", pki, self.root / "var/lib/kube-proxy"):
            each.mkdir(parents=True)
        issued = cloud.authority.issue_node(self.node)
        (pki / "kubelet-client-1.pem").write_bytes(issued.certificate + issued.key)
        (pki / "kubelet-client-current.pem").symlink_to("kubelet-client-1.pem")
        current = str(pki / "kubelet-client-current.pem")
        kubelet = write_kubeconfig(kubernetes / "kubelet.conf", server, authority=cloud.authority.certificate)
        document = yaml.safe_load(kubelet.read_text())
        document["users"][0]["user"] = {"client-certificate": current, "client-key": current}
        kubelet.write_text("# made by kubeadm\n" + yaml.safe_dump(document))
        write_kubeconfig(
            self.root / "var/lib/kube-proxy/kubeconfig.conf",
            server,
            authority=cloud.authority.certificate,
            credential=cloud.authority.issue_client("system:kube-proxy"),
        )

    def _call(self, arguments: list[str]) -> str:
        """Act as systemctl; return its error text, or ""."""
        self.called.append(" ".join(arguments))
        match arguments:
            case ["restart", "edgehub.socket"]:
                pass  # here the hub itself opens its ports
            case ["is-active", "--quiet", name]:
                return "" if name in self._services else "inactive"
            case ["restart", name] | ["start", "--no-block", name]:
                self._start(name)
            case ["disable", "--now", *names] | ["stop", *names]:
                for name in names:
                    self._stop(name)
            case ["enable", *names]:
                self._enabled |= {*names}
            case ["disable", *names]:
                self._enabled -= {*names}
            case ["daemon-reload"] | ["show" | "status", *_]:
                pass
            case _:
                return f"what is {arguments}?"
        return ""

    def _stop(self, name: str) -> None:
        if (running := self._services.pop(name, None)) is not None:
            running.stop()

    def _start(self, name: str) -> None:
        self._stop(name)
        match name:
            case self.kubelet_service:
                kubeconfig = self.root / self.kubelet_kubeconfig
                self._services[name] = HollowKubelet(self.node, kubeconfig, self.folder, self._programs)
            case "kube-proxy.service":
                kubeconfig = self.root / "var/lib/kube-proxy/kubeconfig.conf"
                self._services[name] = HollowProxy(self.node, kubeconfig, self.folder, self._programs)
            case _ if name == GUARD_UNIT:
                below = ["--root", str(self.root), "--systemctl", str(self.systemctl), "--timeout", "180"]
                self._services[name] = Process("guard", [*self._command(name), *below], self.folder)
            case _:
                self._services[name] = Process("hub", self._command(name), self.folder)

    def _command(self, name: str) -> list[str]:
        """Return the command line of a unit, with its paths below this root."""
        lines = (self.root / "etc/systemd/system" / name).read_text().splitlines()
        (line,) = (each for each in lines if each.startswith("ExecStart="))
        arguments = shlex.split(line.removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$"))
        return [
            f"{self.root}{argument}" if argument.startswith("/etc/") else argument for argument in arguments
        ]


def edgehub(
    machine: Machine, command: str, *flags: str, hub: bool = False, more: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a subcommand that changes the machine; with `hub` the flags of its hub follow, then `more`."""
    own = ["--", *machine.hub_flags, *more] if hub else []
    arguments = ["--root", str(machine.root), *flags, *own]
    return subprocess.run(
        [sys.executable, "-m", "addons.command", command, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
