"""Boots a machine as its PID 1: `python -m scripts.node_machine.boot PLAN`, in the namespaces that unshare made.

It mounts the machine's root (an overlay over the userland, with the programs and folders of the plan), waits until
standard input is closed, which means that the network is ready, and becomes systemd.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

SYSTEMD = "/lib/systemd/systemd"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse")
OWN_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""Kernel settings that kubelet writes. The kernel is shared with this machine, so the machine gets files of its own."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The mounts of a machine. `layers` are folders, uppermost first; `binds` are pairs of a source and its path in the
    machine; `persistent` are folders of the machine that cannot be on an overlay."""

    folder: str
    hostname: str
    layers: list[str]
    binds: list[tuple[str, str]]
    persistent: list[str]
    cgroups: list[tuple[str, str]]
    """Kind and controllers of each hierarchy."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def main(plan: Plan) -> None:
    """Mount the machine's root, enter it, and become systemd."""
    _run("mount", "--make-rprivate", "/")
    root = _overlay(plan)
    _mount_kernel(root, plan)
    _fill_devices(root)
    for name in plan.persistent:
        own = Path(plan.folder) / "kept" / name.strip("/").replace("/", "-")
        own.mkdir(parents=True, exist_ok=True)
        bind(own, root / name.lstrip("/"))
    for source, target in plan.binds:
        bind(Path(source), root / target.lstrip("/"), read_only=True)
    _run("hostname", plan.hostname)
    os.chdir(root)
    (root / "old").mkdir(exist_ok=True)
    _run("pivot_root", ".", "old")
    os.chdir("/")
    _run("umount", "--lazy", "/old")
    # Mounts of a pod's volumes must reach its containers.
    _run("mount", "--make-rshared", "/")
    sys.stdin.read()
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    environment = {"container": "edgehub-node", "PATH": PATH}
    # systemd 257 asks for the argument where cgroups are of the first version; in a container it reads its own.
    command = [
        SYSTEMD,
        "--system",
        "--log-target=journal",
        "--show-status=0",
        "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1",
    ]
    os.execve(SYSTEMD, command, environment)  # noqa: S606 - PID 1 is what this process is to become


def bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    """Bind-mount a file or a folder at another path."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _run("mount", "--bind", source, target)
    if read_only:
        _run("mount", "-o", "remount,bind,ro", target)


def _overlay(plan: Plan) -> Path:
    folder = Path(plan.folder)
    for name in ("upper", "work", "root"):
        (folder / name).mkdir(exist_ok=True)
    options = f"lowerdir={':'.join(plan.layers)},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    _run("mount", "-t", "overlay", "overlay", "-o", options, folder / "root")
    return folder / "root"


def _mount_kernel(root: Path, plan: Plan) -> None:
    for kind, target, options in (
        ("proc", "proc", "nosuid,nodev,noexec"),
        ("sysfs", "sys", "nosuid,nodev,noexec"),
        ("tmpfs", "run", "mode=0755"),
        ("tmpfs", "tmp", "mode=1777"),
        ("tmpfs", "dev", "mode=0755"),
    ):
        (root / target).mkdir(exist_ok=True)
        _run("mount", "-t", kind, "-o", options, kind, root / target)
    _mount_cgroups(root / "sys/fs/cgroup", plan)
    sysctls, own = root / "proc/sys", root / "run/machine"
    own.mkdir()
    values = {name: (sysctls / name).read_text() for name in OWN_SYSCTLS if (sysctls / name).exists()}
    # By this id kubelet detects a reboot.
    values["kernel/random/boot_id"] = f"{uuid.uuid4()}\n"
    bind(sysctls, sysctls, read_only=True)
    _run("mount", "--bind", sysctls / "net", sysctls / "net")
    _run("mount", "-o", "remount,bind,rw", sysctls / "net")
    for name, value in values.items():
        file = own / name.replace("/", ".")
        file.write_text(value)
        _run("mount", "--bind", file, sysctls / name)
        _run("mount", "-o", "remount,bind,rw", sysctls / name)


def _mount_cgroups(target: Path, plan: Plan) -> None:
    if [kind for kind, _ in plan.cgroups] == ["cgroup2"]:
        _run("mount", "-t", "cgroup2", "cgroup2", target)
        return
    _run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", target)
    for kind, controllers in plan.cgroups:
        folder = target / controllers.removeprefix("name=")
        folder.mkdir()
        _run("mount", "-t", kind, "-o", controllers, kind, folder)


def _fill_devices(root: Path) -> None:
    devices = root / "dev"
    for name in DEVICES:
        if Path("/dev", name).exists():
            bind(Path("/dev", name), devices / name)
    for name, options in (("pts", "newinstance,ptmxmode=0666,mode=0620,gid=5"), ("shm", ""), ("mqueue", "")):
        (devices / name).mkdir()
        kind = {"pts": "devpts", "shm": "tmpfs"}.get(name, name)
        _run("mount", "-t", kind, *(("-o", options) if options else ()), kind, devices / name)
    for name, target in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
    ):
        (devices / name).symlink_to(target)


def _run(*command: str | Path) -> None:
    subprocess.run([str(argument) for argument in command], check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    main(Plan(**{**given, "binds": [tuple(pair) for pair in given["binds"]]}))
