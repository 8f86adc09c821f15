"""What the disk says of a copy besides its objects: what was asked, by whom, and the last event that it has."""

from __future__ import annotations

import hashlib

import orjson

from kube.disk.database import Meta
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.store import Witness
from kube.wire.encoding import Encoding

FORMER = "former"
"""In a meta: the copy is of another history than the cloud's."""


def is_shown(meta: Meta) -> bool:
    """Whether a copy's objects may be shown: there are some, of the history that the cloud has."""
    return "question" in meta and not {"refused", FORMER} & meta.keys()


def witness_of(meta: Meta) -> Witness | None:
    """The last event that a copy has; None where it ends with a list."""
    match meta.get("witness"):
        case [str(namespace), str(name), int(version)]:
            return Witness((namespace, name), version)
    return None


def list_watch_of(meta: Meta) -> ListWatch:
    """The list-watch that a copy's meta describes."""
    group, version, resource, namespace, labels, fields, encoding, metadata_only = meta["question"]
    kind = ResourceType(group, version, resource)
    return ListWatch(kind, namespace, labels, fields, Encoding(encoding), metadata_only)


def described(list_watch: ListWatch) -> list[str | bool]:
    """A list-watch, as a copy's meta describes it."""
    return [
        *(list_watch.type.group, list_watch.type.version, list_watch.type.resource),
        *(list_watch.namespace, list_watch.label_selector, list_watch.field_selector),
        *(list_watch.encoding, list_watch.metadata_only),
    ]


def source_name(identity: str, list_watch: ListWatch) -> str:
    """The name of a source on disk: one for each identity and list-watch."""
    return hashlib.sha256(orjson.dumps([identity, *described(list_watch)])).hexdigest()[:32]
