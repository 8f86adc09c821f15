"""Recognises writes that change nothing but a trigger annotation, so that filtered views do not send them.

OpenYurt's controller writes the annotation to every slice whose filtering might have changed, so that hubs filter the
slice again. This hub filters again by itself, so a client of a filtered view gets an event only for a real difference.
"""

from __future__ import annotations

from kube.store.store import Item

TRIGGERS = ("openyurt.io/updateTrigger", "openyurt.io/update-trigger")
"""On Endpoints and EndpointSlices, as older and newer controllers of OpenYurt spell it."""

_NAMES = tuple(name.encode() for name in TRIGGERS)


def is_only_triggered(before: Item, after: Item) -> bool:
    """Whether two versions of an object, as served, differ in nothing but a trigger and the bookkeeping of a write.

    Bookkeeping is metadata.resourceVersion and metadata.managedFields. ValueError when one is malformed.
    """
    # Both encodings hold the names as text, so most events need no parsing.
    if not any(name in item.raw for item in (before, after) for name in _NAMES):
        return False
    return _annotations(before) != _annotations(after) and _essence(before) == _essence(after)


def _annotations(item: Item) -> dict[str, str]:
    return item.decode().annotations


def _essence(item: Item) -> bytes:
    obj = item.decode()
    metadata = obj.fields.child("metadata")
    metadata.clear("resourceVersion")
    metadata.clear("managedFields")
    kept = {name: text for name, text in obj.annotations.items() if name not in TRIGGERS}
    metadata.set_mapping("annotations", kept)
    return obj.fields.encode()
