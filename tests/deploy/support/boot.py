"""Boots the machine's systemd as a separate node: `python -m tests.deploy.support.boot FOLDER SOURCE=PLACE…`. `unshare`
has created the namespaces, and their PID 1 becomes systemd. The node's root is an overlay over the machine's, whose
changes are in memory and vanish with the node; each SOURCE, a folder of the machine, is mounted at PLACE on the node.
Of the machine's units the node has the targets and the journal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SYSTEMD = "/lib/systemd/systemd"
KEEP_UNITS = frozenset({"systemd-journald.socket", "systemd-journald.service", "sockets.target"})
"""Units in the machine's targets that a target of the node still wants."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ADDRESS, GATEWAY = "192.0.2.10", "192.0.2.1"
"""The addresses of the node and of a nonexistent gateway, from a documentation range (RFC 5737)."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def main(folder: Path, shared: list[tuple[str, str]]) -> None:
    """Prepare the node's files below a folder, enter it, and become systemd."""
    _run("mount", "--make-rprivate", "/")
    root = _overlay(folder)
    for name in ("run", "tmp", "dev"):
        _run(
            "mount", "-t", "tmpfs", "-o", "mode=0755" if name != "tmp" else "mode=1777", "tmpfs", root / name
        )
    for kind, target in (("proc", "proc"), ("sysfs", "sys"), ("cgroup2", "sys/fs/cgroup")):
        _run("mount", "-t", kind, kind, root / target)
    for source, target in [*shared, *((f"/dev/{name}", f"/dev/{name}") for name in DEVICES)]:
        _bind(Path(source), root / target.lstrip("/"))
    (root / "dev/ptmx").symlink_to("pts/ptmx")
    _connect()
    _forget_units(root)
    os.chdir(root)
    (root / "old").mkdir()
    _run("pivot_root", ".", "old")
    os.chdir("/")
    _run("umount", "--lazy", "/old")
    environment = {"container": "edgehub-test", "PATH": PATH}
    command = [SYSTEMD, "--system", "--log-target=console", "--show-status=0"]
    os.execve(SYSTEMD, command, environment)  # noqa: S606 - PID 1 is what this process is to become


def _overlay(folder: Path) -> Path:
    memory, root = folder / "memory", folder / "root"
    for each in (memory, root):
        each.mkdir()
    _run("mount", "-t", "tmpfs", "tmpfs", memory)
    upper, work = memory / "upper", memory / "work"
    for each in (upper, work):
        each.mkdir()
    _run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", root)
    return root


def _bind(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.touch()
    _run("mount", "--rbind", source, target)


def _connect() -> None:
    """Give the node a network without any peer: kubelet uses the address of the default route as the node's."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "node0", "type", "veth", "peer", "name", "nowhere0")
    _run("ip", "address", "add", f"{ADDRESS}/24", "dev", "node0")
    for device in ("nowhere0", "node0"):
        _run("ip", "link", "set", device, "up")
    _run("ip", "route", "add", "default", "via", GATEWAY)


def _forget_units(root: Path) -> None:
    """Remove all units and their dependencies, except the targets and the journal."""
    own = root / "etc/systemd/system"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    for wanted in (root / "lib/systemd/system").glob("*.wants/*"):
        if wanted.name not in KEEP_UNITS:
            wanted.unlink()
    (own / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    (root / "etc/fstab").write_text("")
    # There is no DNS server, and kubelet would wait for its own name.
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text("")
    (root / "etc/machine-id").write_text("0" * 31 + "1\n")


def _run(*arguments: str | Path) -> None:
    subprocess.run(arguments, check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    pairs = [each.partition("=") for each in sys.argv[2:]]
    main(Path(sys.argv[1]), [(source, target) for source, _, target in pairs])
