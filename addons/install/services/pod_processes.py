"""Pods of this node: containers that have the hub's address as the API server's, their restart, and the end of a pod.

The address is in a container's environment, which kubelet sets once, when the container starts.
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
"""In the path of a container's cgroup, by either driver; kubelet makes a static pod's of its manifest."""
GRACE = 10.0
"""Seconds from SIGTERM to SIGKILL."""


class Container(NamedTuple):
    """A container's first process, and its pod as namespace/name, or the pod's uid where no log has the name."""

    pod: str
    pid: int


def containers_at(addresses: Collection[str], root: Path) -> list[Container]:
    """Find the containers that were started with one of these addresses, by pod, except this process' own container.

    The manager's Job runs in one. `root` is the node's.
    """
    wanted = {VARIABLE + address.encode() for address in addresses}
    names = _pod_names(root / LOGS)
    return sorted(
        Container(names.get(uid, uid), pid)
        for pid, uid in _first_processes(root / PROC)
        if wanted.intersection(_environment(root / PROC / str(pid)))
    )


def end(containers: Iterable[Container], grace: float = GRACE) -> None:
    """End containers as kubelet does, and return when they are gone; kubelet restarts them by their pods' policy."""
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
    """Whether kubelet has a folder for the pod `name`, as namespace/name. It removes the folder after all else."""
    return any(each == name and (root / PODS / uid).exists() for uid, each in _pod_names(root / LOGS).items())


def _still_running(descriptors: Collection[int], seconds: float) -> set[int]:
    """Wait until the processes have ended, for so many seconds at most; those that have not."""
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
    """The processes of pods whose parents are in another cgroup, with their pods' uids; not of this one's container."""
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
    """The path of the last hierarchy: version 2's, or one of version 1, where a container has the same in each."""
    return (process / "cgroup").read_text().splitlines()[-1].partition(":")[2].partition(":")[2]


def _parent(process: Path) -> int:
    # The name of the program, in parentheses, may have anything in it.
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def _environment(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _pod_names(logs: Path) -> dict[str, str]:
    """The pods' names by uid: kubelet has a folder NAMESPACE_NAME_UID for the logs of each."""
    parts = (folder.name.split("_") for folder in logs.glob("*_*_*"))
    return {uid: f"{namespace}/{name}" for namespace, name, uid in (each for each in parts if len(each) == 3)}
