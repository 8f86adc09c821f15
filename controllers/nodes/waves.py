"""The annotations of a NodePool for its hubs: how many nodes change at a time, the pauses, and the version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from kube.requests.query import parse_duration

UNAVAILABLE = "edgehub.io/max-unavailable"
"""The NodePool annotation with the number or percentage of nodes that change at a time; default 1."""
PAUSE = "edgehub.io/wave-pause"
"""The NodePool annotation with the pause between two waves; default 0s."""
READY_TIMEOUT = "edgehub.io/ready-timeout"
"""The NodePool annotation with the time in which a node must be Ready, with its hub, after its Job; default 5m."""
LONGEST_NUMBER = 6
"""Digits of a number in an annotation."""
HUB_VERSION = "edgehub.io/hub-version"
"""The NodePool annotation with the wanted version of its hubs, a tag of the hub image that the manager is given."""
TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Waves:
    """How a NodePool's nodes change. `error` names an invalid annotation; then no wave begins."""

    max_unavailable: str = "1"
    pause: timedelta = timedelta()
    ready_timeout: timedelta = timedelta(minutes=5)
    version: str = ""
    """The wanted version of hubs; "" for any."""
    error: str = ""

    def size(self, nodes: int) -> int:
        """Return the number of nodes that change at a time; a percentage is rounded down, to at least one."""
        number = int(self.max_unavailable.removesuffix("%"))
        return max(1, number * nodes // 100 if self.max_unavailable.endswith("%") else number)


def read_waves(annotations: Mapping[str, str]) -> Waves:
    """Parse the annotations. One that cannot be followed has its default, and the others hold for what is under way."""
    usual, errors = Waves(), list[str]()
    given = annotations.get(UNAVAILABLE, usual.max_unavailable)
    digits = given.removesuffix("%")
    if not (digits.isdecimal() and digits.isascii() and len(digits) <= LONGEST_NUMBER and int(digits)):
        errors.append(f"the annotation {UNAVAILABLE} is neither a number nor a percentage above 0")
        given = usual.max_unavailable
    times = {PAUSE: usual.pause, READY_TIMEOUT: usual.ready_timeout}
    for name in times.keys() & annotations.keys():
        try:
            times[name] = timedelta(seconds=max(0.0, parse_duration(annotations[name])))
        except ValueError as error:
            errors.append(f"the annotation {name}: {error}")
    version = annotations.get(HUB_VERSION, "")
    if version and not TAG.fullmatch(version):
        errors.append(
            f"the annotation {HUB_VERSION} is not a version, a tag of the hub's image such as 1.2.3"
        )
        version = ""
    return Waves(given, times[PAUSE], times[READY_TIMEOUT], version, "; ".join(sorted(errors)))


def image_of(image: str, version: str) -> str:
    """Return the hub's image for a version, always from the same repository, so that an editor of a pool cannot run
    another program."""
    if not version:
        return image
    path, colon, tag = image.partition("@")[0].rpartition(":")
    # A colon before a slash belongs to a registry's port.
    return f"{path if colon and '/' not in tag else image.partition('@')[0]}:{version}"
