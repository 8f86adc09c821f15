"""`python -m tests.deploy.support.sandbox SPEC`: sets up a container like kubelet and the container runtime. It runs in
its own mount and network namespaces, created by `unshare`. SPEC is a JSON file: `command`, `environment`, `root` (an
image's, or "" for the machine's own), `user` (a number), `account` (a folder with the service account's files), `files`
(pairs of a file and its path), `volumes` (paths of empty folders, with their modes), `admin_port`, and `sockets` (a
folder with `api`, a socket to the API server, in which `admin`, a socket to the admin port, is created)."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

from tests.support.relay import connect_file, file_listener, relay

SECRETS = "run/secrets/kubernetes.io/serviceaccount"
"""/var/run is a link to /run."""
CHECKOUT = Path(__file__).resolve().parents[3]
API_PORT = 6443
LOOPBACK = "127.0.0.1"


def main(spec: Path) -> int:
    """Run the container until it ends; return its exit status."""
    asked = json.loads(spec.read_text())
    _raise_loopback()
    sockets = Path(asked["sockets"])
    relay(socket.create_server((LOOPBACK, API_PORT)), lambda: connect_file(sockets / "api"))
    admin = LOOPBACK, int(asked["admin_port"])
    relay(file_listener(sockets / "admin"), lambda: socket.create_connection(admin))
    root = Path(asked["root"] or "/")
    sees = ["/usr/bin/env", "-i", *asked["environment"], *asked["command"]]
    if asked["root"]:
        sees = ["chroot", "--groups=", f"--userspec={asked['user']}:{asked['user']}", str(root), *sees]
        _mount("--bind", root, root)
        # Mounts that a runtime gives each container.
        _mount("--bind", "/dev", root / "dev")
        _mount("--bind", "/proc", root / "proc")
    _mount_account(root, Path(asked["account"]))
    for source, path in asked["files"]:
        _mount_file(Path(source), root / path.lstrip("/"))
    for volume, mode in asked["volumes"]:
        _mount_volume(root / volume.lstrip("/"), mode, sockets)
    _mount("-o", "remount,bind,ro", root)
    with subprocess.Popen(sees) as container:
        signal.signal(signal.SIGTERM, lambda *_: container.terminate())
        return container.wait()


def _raise_loopback() -> None:
    with socket.socket() as any_socket:
        # SIOCSIFFLAGS with IFF_UP.
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 1))


def _mount_account(root: Path, account: Path) -> None:
    """Mount the account's files at their path in a pod."""
    _mount("-t", "tmpfs", "tmpfs", root / "run")
    folder = root / SECRETS
    folder.mkdir(parents=True)
    for file in account.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())


def _mount_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()
    _mount("--bind", source, target)


def _mount_volume(volume: Path, mode: str, sockets: Path) -> None:
    """Mount an empty folder over another; on the machine's own root the checkout and the sockets stay visible."""
    new = sockets / "volume"
    for folder in (new, volume):
        folder.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", new)
    for shown in (CHECKOUT, sockets):
        if shown.is_relative_to(volume):
            target = new / shown.relative_to(volume)
            target.mkdir(parents=True)
            _mount("--bind", shown, target)
    _mount("--move", new, volume)


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(Path(sys.argv[1])))
