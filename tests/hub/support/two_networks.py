"""A node and a pod in separate networks, and a hub that adds the pod address: `… two_networks FOLDER`. Runs as root of
a new user and network namespace (`unshare --map-root-user --net`). Prints the pod's responses, and what remains of the
address when the hub is uninstalled."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from addons.install.install_spec import InstallSpec
from addons.install.installation import Installation
from addons.install.services.system_services import Services
from addons.startup.pod_interface import INTERFACE
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority

ADDRESSES = ("169.254.2.1", "fd00::2:1")
PORT = 10268
FOR_PODS = ("--pod-address", f"auto,{','.join(ADDRESSES)}", "--tls-signer", "cluster")
POD = """\
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
for address in sys.argv[2:]:
    with socket.create_connection((address, 10268), 20) as plain:
        with context.wrap_socket(plain, server_hostname=address) as conn:
            conn.sendall(b"GET /version HTTP/1.1\\r\\nHost: kubernetes\\r\\nConnection: close\\r\\n\\r\\n")
            print(address, conn.recv(8).decode())
"""
"""A program that sends a request to the hub at each address, and trusts only the CA in a file."""


def run(*arguments: str) -> None:
    subprocess.run(arguments, check=True)


@contextlib.contextmanager
def pod() -> Iterator[list[str]]:
    """Return the prefix of commands that run in the pod, which reaches the node by its default route."""
    with subprocess.Popen(["unshare", "--net", "sleep", "300"]) as sleeper:
        try:
            while os.readlink(f"/proc/{sleeper.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
                time.sleep(0.02)
            inside = ["nsenter", f"--target={sleeper.pid}", "--net"]
            run(
                "ip",
                "link",
                "add",
                "node0",
                "type",
                "veth",
                "peer",
                "name",
                "pod0",
                "netns",
                str(sleeper.pid),
            )
            for begin, device, number in ((list[str](), "node0", 1), (inside, "pod0", 2)):
                run(*begin, "ip", "addr", "add", f"10.9.0.{number}/24", "dev", device)
                run(*begin, "ip", "addr", "add", f"fd09::{number}/64", "dev", device, "nodad")
                run(*begin, "ip", "link", "set", device, "up")
            run(*inside, "ip", "route", "add", "default", "via", "10.9.0.1")
            run(*inside, "ip", "route", "add", "default", "via", "fd09::1")
            yield inside
        finally:
            sleeper.kill()


@contextlib.contextmanager
def hub(folder: Path) -> Iterator[None]:
    """Run a hub without a cloud; yield once it serves the first address."""
    flags = ["--server", "http://127.0.0.1:1", "--node", "n1", "--state-dir", str(folder), "--peer-port", "0"]
    command = [sys.executable, "-m", "addons.command", *flags, *FOR_PODS]
    with subprocess.Popen(command, stderr=sys.stderr) as process:
        try:
            while process.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection((ADDRESSES[-1], PORT), 1):
                    break
                time.sleep(0.1)
            yield
        finally:
            process.terminate()


def sign(folder: Path) -> Path:
    """Give a hub a certificate that a cluster signed; return the cluster's CA as pods have it."""
    cluster = Authority()
    issued = cluster.issue_server("n1", ADDRESSES)
    (folder / "pki").mkdir(parents=True)
    folder.chmod(0o700)
    (folder / "pki" / "cluster.pem").write_bytes(issued.certificate + issued.key)
    authority = folder.parent / "cluster.crt"
    authority.write_bytes(cluster.certificate)
    return authority


def uninstall(root: Path) -> None:
    """Uninstall below another root, with a systemctl that does nothing."""
    kubelet = root / "etc/kubernetes/kubelet.conf"
    kubelet.parent.mkdir(parents=True)
    write_kubeconfig(kubelet, "https://cloud:6443", token="secret")
    name = str(Path("/") / kubelet.relative_to(root))
    spec = InstallSpec("n1", "systemd", "/usr/bin/edgehub", "", FOR_PODS, name, name, ())
    Installation(root, Services(""), print).install(spec, 1, 0)
    run(sys.executable, "-m", "addons.command", "uninstall", "--root", str(root), "--systemctl", "true")


def main(folder: Path) -> None:
    run("ip", "link", "set", "lo", "up")
    authority = sign(folder)
    with pod() as inside, hub(folder):
        run(*inside, sys.executable, "-c", POD, str(authority), *ADDRESSES)
    uninstall(folder.parent / "root")
    print("left:", *(name for _, name in socket.if_nameindex() if name == INTERFACE), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
