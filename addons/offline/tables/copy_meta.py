"""The metadata of a copy on disk: its list-watch, and the history that it has."""

from __future__ import annotations

import contextlib
import hashlib

import orjson

from kube.disk.copy_rows import Meta
from kube.errors import StatusError, forbidden
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.history import LastSeenEvent
from kube.wire.encoding import Encoding

FORMER_HISTORY = "former"
"""A key of a copy's metadata: the copy has another history than the cloud."""
UNFOLLOWED = "unfollowed"
"""A key of a copy's metadata: the cloud may have later objects, because a hub was online without the copy's source."""
APPLIED_WRITES = "applied"
"""A key of a copy's metadata: the writes that the node applied, and the cloud's watch has not sent yet."""


def is_shown(meta: Meta) -> bool:
    """Whether a copy's objects may be shown: it has objects, of the cloud's history."""
    return "question" in meta and not {"refused", FORMER_HISTORY} & meta.keys()


def last_event_of(meta: Meta) -> LastSeenEvent | None:
    """Return the last event in a copy; None if it ends with a list."""
    match meta.get("witness"):
        case [str(namespace), str(name), int(version)]:
            return LastSeenEvent((namespace, name), version)
    return None


def applied_in(meta: Meta) -> list[tuple[tuple[str, str], int]]:
    """Return the writes that the node applied to a copy, by object and version; empty if they are unreadable."""
    with contextlib.suppress(TypeError, ValueError):
        return [
            ((str(namespace), str(name)), int(at)) for namespace, name, at in meta.get(APPLIED_WRITES, ())
        ]
    return []


def list_watch_of(meta: Meta) -> ListWatch:
    """Return the list-watch that a copy's metadata describes."""
    group, version, resource, namespace, labels, fields, encoding, metadata_only = meta["question"]
    kind = ResourceType(group, version, resource)
    return ListWatch(kind, namespace, labels, fields, Encoding(encoding), metadata_only)


def described(list_watch: ListWatch) -> list[str | bool]:
    """Describe a list-watch for a copy's metadata."""
    return [
        *(list_watch.type.group, list_watch.type.version, list_watch.type.resource),
        *(list_watch.namespace, list_watch.label_selector, list_watch.field_selector),
        *(list_watch.encoding, list_watch.metadata_only),
    ]


def source_name(identity: str, list_watch: ListWatch) -> str:
    """Return the name of a source on disk, unique for each identity and list-watch."""
    return hashlib.sha256(orjson.dumps([identity, *described(list_watch)])).hexdigest()[:32]


def refusal_of(code: object, resource: str) -> StatusError | None:
    """Return the cloud's stored refusal of a resource, which is valid in an outage too."""
    if code == 404:
        return StatusError(404, "NotFound", "the server could not find the requested resource")
    return forbidden(f"{resource} is forbidden, as the cloud said before") if code == 403 else None
