"""A hub on trial: its predecessor's files are recorded, and a guard waits beside the process that replaces it.

That process holds the ledger's lock, for which the guard waits. The guard is a systemd unit or a static pod,
so it survives that process and starts again after a reboot. A trial that it then finds was abandoned.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import NamedTuple

from addons.install.changes import FileChange
from addons.install.install_spec import (
    STATIC_POD,
    UNIT_FILE,
    InstallSpec,
    read_spec,
)
from addons.install.services.system_services import (
    GUARD_POD,
    GUARD_UNIT,
    guard_pod,
    guard_unit,
)
from kube.json_type import Json

COMMAND = ("upgrade", "--settle")


class Trial(NamedTuple):
    """A replacement of the hub that has not completed."""

    previous: InstallSpec
    before: dict[Path, bytes | None]
    """Contents of the files that change; None for a file that did not exist."""
    target: str
    """The program or image on trial, or the command that changes more."""

    @property
    def moves_clients(self) -> bool:
        """Whether kubeconfigs of the hub's clients change."""
        return not self.before.keys() <= self.previous.hub_files

    def to_json(self) -> Json:
        before = {
            str(path): None if data is None else base64.b64encode(data).decode()
            for path, data in self.before.items()
        }
        return {"former": self.previous.to_json(), "before": before, "target": self.target}


def read_trial(trial: Json) -> Trial:
    """Return the trial stored in a ledger."""
    before = {
        Path(path): None if data is None else base64.b64decode(data) for path, data in trial["before"].items()
    }
    return Trial(read_spec(trial["former"]), before, trial["target"])


def guard_path(previous: InstallSpec) -> Path:
    """Return the path of the guard's unit or static pod."""
    is_unit = previous.method == "systemd"
    return UNIT_FILE.with_name(GUARD_UNIT) if is_unit else STATIC_POD.with_name(f"{GUARD_POD}.yaml")


def guard_file(trial: Trial) -> FileChange:
    """Return the guard's unit or static pod. It runs the previous hub's program, which has worked on this node."""
    previous = trial.previous
    if previous.method == "systemd":
        text = guard_unit([previous.program, *COMMAND])
    else:
        text = guard_pod(previous.image, COMMAND, restarts_clients=trial.moves_clients)
    return FileChange(guard_path(previous), text.encode())
