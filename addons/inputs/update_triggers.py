"""Recognises writes that change nothing but a trigger annotation, so that filtered views do not send them.

OpenYurt's controller writes the annotation to every slice whose filtering might have changed, so that hubs filter the
slice again. This hub filters again by itself, so a client of a filtered view gets an event only for a real difference.
"""

from __future__ import annotations

from kube.store.store import Item
from kube.wire.api_objects import ApiObject

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
    was, now = before.decode(), after.decode()
    return was.annotations != now.annotations and _essence(was) == _essence(now)


def _essence(obj: ApiObject) -> bytes:
    """What is left of an object without a trigger and bookkeeping; the object is of no use afterwards."""
    metadata = obj.fields.child("metadata")
    metadata.clear("resourceVersion")
    metadata.clear("managedFields")
    annotations = {name: text for name, text in obj.annotations.items() if name not in TRIGGERS}
    metadata.set_mapping("annotations", annotations)
    return obj.fields.encode()
