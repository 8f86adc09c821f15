"""The status that a hub writes to an annotation of its node's Lease, which it renews anyway."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import orjson

ANNOTATION = "edgehub.io/hub-status"
"""Of a node's Lease: a `HubStatus` as JSON."""
LONGEST = 1024
"""Bytes of the annotation that are read. A node's key can write any text to its Lease."""


@dataclass(frozen=True, slots=True)
class HubStatus:
    """The state of one hub. Times are seconds since the epoch, 0 for none."""

    version: str = ""
    pool: str = ""
    via: str = ""
    """The server of the cloud that the hub uses, or the node whose way to the cloud it borrows."""
    since: int = 0
    """When the link to the cloud came up last."""
    stale: int = 0
    """How many of its copies do not follow the cloud."""
    oldest: int = 0
    """When the cloud last sent anything for the oldest of these."""
    waiting: int = 0
    """How many writes wait for the cloud."""
    problems: int = 0
    """Faults in the hub's configuration: invalid rules, filters that cannot be loaded, closed listeners."""
    up: int = 0
    """Bytes to the cloud today."""
    down: int = 0
    """Bytes from the cloud today."""

    def dump(self) -> str:
        """The annotation, without empty fields, because it goes over an edge link."""
        return orjson.dumps({name: value for name, value in asdict(self).items() if value}).decode()

    def lasting(self) -> HubStatus:
        """The part whose changes are reported at once."""
        return replace(self, oldest=0, up=0, down=0)


def read_status(text: str) -> HubStatus:
    """The status in an annotation; fields that a newer hub has are left out. ValueError where it is none."""
    if len(text) > LONGEST:
        raise ValueError(f"it has more than {LONGEST} bytes")
    said: Any = orjson.loads(text)
    if not isinstance(said, dict):
        raise ValueError("it is no object")
    known = {field.name: type(field.default) for field in fields(HubStatus)}
    taken = {name: value for name, value in said.items() if name in known}
    for name, value in taken.items():
        if type(value) is not known[name]:
            raise ValueError(f"{name} is no {known[name].__name__}")
        if isinstance(value, str) and not value.isprintable():
            raise ValueError(f"{name} cannot be printed")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{name} is negative")
    return HubStatus(**taken)
