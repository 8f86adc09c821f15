"""Recognises and rewrites the Service `default/kubernetes`, by which pods find the API server.

The filters that direct pods to the hub share these functions.
"""

from __future__ import annotations

from addons.filters.builtin.pruning import SERVICE_NAME_LABEL, SLICE
from addons.filters.verdict import Note, Outcome, ignore_note
from kube.wire.api_objects import ApiObject
from kube.wire.fields import Fields

NAMESPACE = "default"
NAME = "kubernetes"
HTTPS = "https"
"""The name of the Service's port, also in its Endpoints and its slices."""


def is_kubernetes(obj: ApiObject) -> bool:
    """True for the Service default/kubernetes, its Endpoints, and its slices.

    A slice is identified by its name, as in OpenYurt and SuperEdge, or by its label: on a dual-stack cluster the slice
    of the second family has another name.
    """
    if obj.namespace != NAMESPACE:
        return False
    return obj.name == NAME or (obj.kind == SLICE and obj.labels.get(SERVICE_NAME_LABEL) == NAME)


def https_port(owner: Fields) -> Fields | None:
    """Return the entry of `ports` with the name https."""
    return next((port for port in owner.children("ports") if port.text("name") == HTTPS), None)


def write_port(entry: Fields, number: int) -> bool:
    """Set the number of an entry of `ports`; return whether it differed."""
    if entry.number("port") == number:
        return False
    entry.set("port", number)
    return True


def write_texts(fields: Fields, name: str, values: list[str]) -> bool:
    """Replace a list of strings; return whether it differed."""
    if fields.texts(name) == values:
        return False
    fields.set_texts(name, values)
    return True


def say_address(note: Note, obj: ApiObject, differs: bool, where: str) -> None:
    if note is not ignore_note:
        outcome = Outcome.CHANGED if differs else Outcome.KEPT
        note(f"{obj.kind} {obj.namespace}/{obj.name}", outcome, f"points at {where}")
