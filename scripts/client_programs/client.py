"""A running client program, and the Services that it knows according to its output."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cloud.processes import Process

LOOK = 0.05
"""Seconds between two reads of a program's output."""
NAMES_SHOWN = 3
"""Names in the text of a difference."""


class Client:
    """A program, and the Services that it knows: version by name."""

    def __init__(
        self, name: str, command: Sequence[str | Path], kubeconfig: Path, namespace: str, folder: Path
    ) -> None:
        self._process = Process(name, [*command, kubeconfig, namespace], folder)
        self._read = 0
        self.is_synced = False
        self.services: dict[str, str] = {}
        self.events = 0
        """The number of events since its start."""

    def look(self) -> None:
        """Read the program's new output."""
        lines = self._process.lines
        for line in lines[self._read : (end := len(lines))]:
            if line.startswith("{"):
                self._take(json.loads(line))
        self._read = end

    def _take(self, said: Mapping[str, Any]) -> None:
        match said["type"]:
            case "LIST":
                self.services.clear()
            case "SYNCED":
                self.is_synced = True
            case "DELETED":
                self.events += 1
                self.services.pop(said["name"], None)
            case _:
                self.events += 1
                self.services[said["name"]] = said["version"]

    def difference(self, wanted: Mapping[str, str]) -> str:
        """Describe the difference from these Services briefly; "" if there is none."""
        self.look()
        if not self.is_synced:
            return "not synced" if self.is_running else "ended"
        missing = sorted(wanted.keys() - self.services.keys())
        more = sorted(self.services.keys() - wanted.keys())
        older = sorted(
            name for name in wanted.keys() & self.services.keys() if wanted[name] != self.services[name]
        )
        differences = {"missing": missing, "ghosts": more, "not current": older}
        return "; ".join(
            f"{len(names)} {what}: {', '.join(names[:NAMES_SHOWN])}"
            for what, names in differences.items()
            if names
        )

    @property
    def is_running(self) -> bool:
        return self._process.running

    def stop(self) -> None:
        self._process.kill()


def settle[K](clients: Mapping[K, tuple[Client, Mapping[str, str]]], seconds: float) -> dict[K, str]:
    """Wait until each client knows the expected Services; return the differences of clients that do not in time."""
    until = time.monotonic() + seconds
    while True:
        wrong = {name: client.difference(wanted) for name, (client, wanted) in clients.items()}
        wrong = {name: what for name, what in wrong.items() if what}
        if time.monotonic() > until or not any(clients[name][0].is_running for name in wrong):
            return wrong
        time.sleep(LOOK)
