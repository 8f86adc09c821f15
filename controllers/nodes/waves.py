"""The wishes of a NodePool for its hubs: how many nodes at a time, how soon, and which version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from kube.requests.query import parse_duration

UNAVAILABLE = "edgehub.io/max-unavailable"
"""The annotation of a NodePool with the number or percentage of nodes that change at a time; 1 by default."""
PAUSE = "edgehub.io/wave-pause"
"""The annotation of a NodePool: how long the next wave waits for; 0s."""
READY_TIMEOUT = "edgehub.io/ready-timeout"
"""The annotation of a NodePool: the time in which a node must be Ready, with its hub, after its Job; 5m."""
LONGEST_NUMBER = 6
"""Digits of a number in an annotation."""
HUB_VERSION = "edgehub.io/hub-version"
"""The annotation of a NodePool: the version that its hubs are to have, a tag of the manager's image of hubs."""
TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Waves:
    """The wishes of a NodePool. `error` names an annotation that cannot be followed; then no wave begins."""

    max_unavailable: str = "1"
    pause: timedelta = timedelta()
    ready_timeout: timedelta = timedelta(minutes=5)
    version: str = ""
    """The version that hubs are to have; "" for any."""
    error: str = ""

    def size(self, nodes: int) -> int:
        """Return the number of nodes that change at a time: a percentage is rounded down, to one at least."""
        number = int(self.max_unavailable.removesuffix("%"))
        return max(1, number * nodes // 100 if self.max_unavailable.endswith("%") else number)


def read_waves(annotations: Mapping[str, str]) -> Waves:
    given = annotations.get(UNAVAILABLE, "1")
    digits = given.removesuffix("%")
    if not (digits.isdecimal() and digits.isascii() and len(digits) <= LONGEST_NUMBER):
        return Waves(error=f"the annotation {UNAVAILABLE} is no number and no percentage")
    times: dict[str, timedelta] = {}
    for name, usual in ((PAUSE, "0s"), (READY_TIMEOUT, "5m")):
        try:
            times[name] = timedelta(seconds=max(0.0, parse_duration(annotations.get(name, usual))))
        except ValueError as error:
            return Waves(error=f"the annotation {name}: {error}")
    version = annotations.get(HUB_VERSION, "")
    if version and not TAG.fullmatch(version):
        return Waves(
            error=f"the annotation {HUB_VERSION} is no version, a tag of the hub's image such as 1.2.3"
        )
    return Waves(given, times[PAUSE], times[READY_TIMEOUT], version)


def image_of(image: str, version: str) -> str:
    """The hub's image for a version, always in the same repository, so that an editor of a pool cannot choose another
    program."""
    if not version:
        return image
    path, colon, tag = image.partition("@")[0].rpartition(":")
    # A colon before a slash belongs to a registry's port.
    return f"{path if colon and '/' not in tag else image.partition('@')[0]}:{version}"
