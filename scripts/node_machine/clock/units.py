"""Moves the clocks of a node's hub, kubelet and containers, and of the control plane, by systemd drop-ins."""

from __future__ import annotations

import os
import re
from pathlib import Path

from scripts.node_machine.commands import LackError
from scripts.node_machine.machine import Machine, faked
from scripts.node_machine.node import KUBEADM_DROP_IN
from scripts.node_machine.userland import CHECKOUT

MOVED = re.compile(r"(\d+)([smhd])")
LATER = f"/usr/bin/python3 -I {CHECKOUT}/scripts/node_machine/clock/later.py"
UNITS = "/etc/systemd/system"
HUB, MANAGER = f"{UNITS}/edgehub.service.d/later.conf", f"{UNITS}/edgehub-manager.service.d/later.conf"
KUBELET = f"{UNITS}/kubelet.service.d/later.conf"
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""Units of the cloud that use the wall clock; etcd's leases use another clock."""
RUNC = "/usr/local/sbin/runc"
"""The path of a wrapper that precedes runc in containerd's PATH."""
RUNC_SCRIPT = """\
#!/bin/sh
case " $* " in
*" start "*) exec {later} {moved} /usr/sbin/runc "$@" ;;
esac
exec /usr/sbin/runc "$@"
"""


def seconds(text: str) -> int:
    """Return the seconds of a duration such as `90s`, `1h` or `40d`; ValueError for any other text."""
    found = MOVED.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no length of time: a number and s, m, h or d")
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def move_node(node: Machine, moved: int) -> None:
    """Set the clock of a node's hub, kubelet and containers `moved` seconds ahead, from their next start on."""
    files = {
        HUB: _interpreted(moved),
        KUBELET: launched(KUBEADM_DROP_IN, moved),
        RUNC: RUNC_SCRIPT.format(later=LATER, moved=moved),
    }
    for path, text in files.items():
        _write(node, path, text if moved else "")
    _remember(node, moved)


def move_cloud(cloud: Machine, moved: int) -> None:
    """Set the clock of control plane and manager `moved` seconds ahead, and restart them."""
    files = {MANAGER: _interpreted(moved)}
    for name in CONTROL_PLANE:
        unit = f"{UNITS}/{name}.service"
        files[f"{unit}.d/later.conf"] = launched(cloud.run("cat", unit), moved)
    for path, text in files.items():
        _write(cloud, path, text if moved else "")
    cloud.run("systemctl", "daemon-reload")
    cloud.run("systemctl", "--no-block", "try-restart", *CONTROL_PLANE, "edgehub-manager")
    _remember(cloud, moved)


def launched(unit: str, moved: int) -> str:
    """Return a drop-in that runs a unit's command with a later time."""
    *_, command = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    return f"[Service]\nExecStart=\nExecStart={LATER} {moved} {command}\n"


def _interpreted(moved: int) -> str:
    """Return a drop-in for hub and manager, whose Python reads the time by the C library."""
    return f"[Service]\nEnvironment={' '.join(faked(moved))}\n"


def require_x86() -> None:
    """Raise LackError on a processor on which the clock of Go programs cannot be changed."""
    if os.uname().machine != "x86_64":
        raise LackError("clocks are moved on x86-64 alone")


def _remember(machine: Machine, moved: int) -> None:
    (machine.folder / "later").write_text(f"{moved}")


def _write(machine: Machine, path: str, text: str) -> None:
    """Write a file of a machine, running or not; delete it if the text is empty."""
    root = Path(f"/proc/{machine.pid}/root") if machine.runs else machine.folder / "upper"
    file = root / path.lstrip("/")
    file.unlink(missing_ok=True)
    if text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if text.startswith("#!") else 0o644)
