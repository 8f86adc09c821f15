"""A node and a pod, each with a network of its own, and a hub that makes the address for pods: `… two_networks FOLDER`.

Runs as root of a new user and network namespace (`unshare --map-root-user --net`). Prints what the pod gets.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ADDRESSES = ("169.254.2.1", "fd00::2:1")
PORT = 10268
POD = """\
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
for address in sys.argv[2:]:
    with socket.create_connection((address, 10268), 20) as plain:
        with context.wrap_socket(plain, server_hostname=address) as conn:
            conn.sendall(b"GET /version HTTP/1.1\\r\\nHost: kubernetes\\r\\nConnection: close\\r\\n\\r\\n")
            print(address, conn.recv(8).decode())
"""
"""Asks the hub at each address, and believes the CA in a file alone."""


def run(*words: str) -> None:
    subprocess.run(words, check=True)


@contextlib.contextmanager
def pod() -> Iterator[list[str]]:
    """What a command begins with that runs in the pod, which reaches the node by its default route."""
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
    """A hub without a cloud, from the moment in which it serves the first address."""
    flags = ["--server", "http://127.0.0.1:1", "--node", "n1", "--state-dir", str(folder), "--peer-port", "0"]
    command = [sys.executable, "-m", "addons.command", *flags, "--pod-address", f"auto,{','.join(ADDRESSES)}"]
    with subprocess.Popen(command, stderr=sys.stderr) as process:
        try:
            while process.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection((ADDRESSES[-1], PORT), 1):
                    break
                time.sleep(0.1)
            yield
        finally:
            process.terminate()


def main(folder: Path) -> None:
    run("ip", "link", "set", "lo", "up")
    with pod() as inside, hub(folder):
        run(*inside, sys.executable, "-c", POD, str(folder / "pki" / "ca.crt"), *ADDRESSES)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
