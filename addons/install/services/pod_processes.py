"""Processes of this node's pods: finds containers that have the hub's address as the API server's, and ends them.

The address is in a container's environment, which kubelet sets when the container starts.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

PROC, LOGS, PODS = Path("proc"), Path("var/log/pods"), Path("var/lib/kubelet/pods")
VARIABLE = b"KUBERNETES_SERVICE_HOST="
POD_UID = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})")
"""Pattern of a pod's uid in its cgroup path, for both cgroup drivers."""
LAST_LINES = 8
"""Lines of a container's log that an error shows."""
GRACE_PERIOD = 10.0
"""Seconds from SIGTERM to SIGKILL."""


class Container(NamedTuple):
    """A container's first process, with its pod as namespace/name, or the pod's uid if no log folder has the name."""

    pod: str
    pid: int


def containers_at(addresses: Collection[str], root: Path) -> list[Container]:
    """Return the containers that were started with one of these addresses, sorted by pod, except this process's own.

    The manager's Job runs in one. `root` is the node's root.
    """
    wanted = {VARIABLE + address.encode() for address in addresses}
    return [
        container
        for container in _containers(root)
        if wanted.intersection(_environment(root / PROC / str(container.pid)))
    ]


def containers_of(pod: str, root: Path) -> list[Container]:
    """Return the containers of a pod, namespace/name, with its sandbox."""
    return [container for container in _containers(root) if container.pod == pod]


def _containers(root: Path) -> list[Container]:
    names = _pod_names(root / LOGS)
    return sorted(Container(names.get(uid, uid), pid) for pid, uid in _first_processes(root / PROC))


def end(containers: Iterable[Container], grace: float = GRACE_PERIOD) -> None:
    """Terminate containers like kubelet, and return when they are gone. kubelet restarts them by their pods' policy."""
    with contextlib.ExitStack() as opened:
        running = {}
        for container in containers:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(container.pid)
                opened.callback(os.close, descriptor)
                signal.pidfd_send_signal(descriptor, signal.SIGTERM)
                running[descriptor] = container
        for descriptor in _still_running(running, grace):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        _still_running(running, grace)


def has_pod(name: str, root: Path) -> bool:
    """Whether kubelet still has a folder for the pod `name` (namespace/name), which it removes near the end."""
    return any(each == name and (root / PODS / uid).exists() for uid, each in _pod_names(root / LOGS).items())


def logs_of(pod: str, uid: str, root: Path) -> dict[int, Path]:
    """Return the log files of a pod's container, by the number of kubelet's restarts before each."""
    folder = root / LOGS / f"{pod.replace('/', '_')}_{uid}"
    return {int(path.stem): path for path in folder.glob("*/*.log") if path.stem.isdecimal()}


def last_lines(log: Path) -> str:
    """Return the last lines of a container's log, without the three fields that the runtime writes before each."""
    try:
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    except OSError:
        return ""
    return "\n".join(line.split(" ", 3)[-1] for line in lines)


def _still_running(descriptors: Collection[int], seconds: float) -> set[int]:
    """Wait for processes to end, at most this many seconds. Return those that still run."""
    left, deadline = set(descriptors), time.monotonic() + seconds
    poll = select.poll()
    for descriptor in left:
        poll.register(descriptor, select.POLLIN)
    while left and (remaining := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(remaining * 1000):
            poll.unregister(descriptor)
            left.discard(descriptor)
    return left


def _first_processes(proc: Path) -> Iterator[tuple[int, str]]:
    """Yield each container's first process with its pod's uid, except for this process's own container.

    A first process is one whose parent is in another cgroup.
    """
    own = ""
    with contextlib.suppress(OSError):
        own = _cgroup(proc / "self")
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            group = _cgroup(folder)
            found = POD_UID.search(group)
            if found and group not in (own, _cgroup(proc / str(_parent(folder)))):
                yield int(folder.name), found[1].replace("_", "-")


def _cgroup(process: Path) -> str:
    """Return the path in the last hierarchy: of version 2, or one of version 1, in which a container has the same path
    each time.
    """
    return (process / "cgroup").read_text().splitlines()[-1].partition(":")[2].partition(":")[2]


def _parent(process: Path) -> int:
    # The program's name, in parentheses, may contain any character.
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _pod_names(logs: Path) -> dict[str, str]:
    """Return the pods' names by uid, from kubelet's log folders NAMESPACE_NAME_UID."""
    parts = (folder.name.split("_") for folder in logs.glob("*_*_*"))
    return {uid: f"{namespace}/{name}" for namespace, name, uid in (each for each in parts if len(each) == 3)}
