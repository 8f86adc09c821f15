"""What the writers of a storm write, and what is known of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from kube.json_type import Json

LABEL = "node.kubernetes.io/instance-type"
"""A label that a kubelet may change with its status."""


@dataclass(slots=True)
class Written:
    """What is known of the writes of one object, by their numbers."""

    accepted: int = 0
    last: int = 0
    """The last that was sent, accepted or not."""
    seen: int = 0
    """The last that the cloud showed."""
    wrong: list[str] = field(default_factory=list)
    """What was wrong since the last checkpoint."""


@dataclass(slots=True)
class Figures:
    """The counts of a run, and what went wrong."""

    kills: int = 0
    accepted: int = 0
    offline: int = 0
    """Accepted while the link was refused."""
    unknown: int = 0
    replayed: int = 0
    refused: int = 0
    excused: int = 0
    """Faults of objects of which a hub had logged that the disk took longer than a second."""
    waits: list[float] = field(default_factory=list)
    """Seconds to each answer."""
    faults: list[str] = field(default_factory=list)


def flips(number: int) -> str:
    """A state that follows from a write's number, and comes back to former values."""
    return "True" if number * 2654435761 % 7 < 4 else "False"


def node_status(number: int) -> Json:
    states = {"Storm": "True", "Flip": flips(number)}
    conditions = [{"type": kind, "status": state, "message": str(number)} for kind, state in states.items()]
    conditions[1].pop("message")
    return {"metadata": {"labels": {LABEL: f"n{number}"}}, "status": {"conditions": conditions}}


def pod_status(number: int) -> Json:
    return {"status": {"message": str(number), "reason": flips(number)}}


def event(node: str, name: str, count: int) -> Json:
    metadata = {"name": name, "namespace": "default"}
    made = {"apiVersion": "v1", "kind": "Event", "metadata": metadata}
    return {**made, "involvedObject": {"kind": "Node", "name": node}, "reason": "Storm", "count": count}


def found_in(obj: Json) -> tuple[int, bool]:
    """The number of the write that an object shows, and whether its other fields follow from it."""
    status = obj.get("status", {})
    match obj["kind"]:
        case "Event":
            return obj.get("count", 0), True
        case "Pod":
            number = int(status.get("message") or 0)
            return number, not number or status.get("reason") == flips(number)
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    if "Storm" not in conditions:
        return 0, True
    number = int(conditions["Storm"]["message"])
    label = obj["metadata"].get("labels", {}).get(LABEL)
    return number, (conditions["Flip"]["status"], label) == (flips(number), f"n{number}")


def path_of(obj: Json) -> str:
    """The path of a node, pod or event."""
    metadata = obj["metadata"]
    place = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
    return f"/api/v1/{place}{obj['kind'].lower()}s/{metadata['name']}"
