"""Entries of the journal: the status of an object, or one request about an event. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import orjson

from kube.errors import StatusError
from kube.json_type import Json
from kube.objects.object_patches import STRATEGIC_MERGE_PATCH
from kube.objects.status_update import WRITTEN, updated
from kube.objects.strategic_diff import emptied, strategic_diff
from kube.objects.strategic_merge import merge_keys_of, strategic_merge
from kube.store.store import Item
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding

UNKNOWN = "\0"
"""A value that differs from every field's value."""
STATUS, EVENT = "status", "event"
"""The kinds of entries, as metrics name them."""


@dataclass(frozen=True, slots=True)
class StatusEntry:
    """Metadata and status of the object at `path`: `before` is the cloud's version, `after` the node's.

    `sent`: the version that the cloud may have as well, because the answer to a patch was lost, or because the copy
    from which the hub took `before` was older than the cloud. It differs from `before` in every field that a patch has
    set.
    """

    path: str
    kind: str
    uid: str
    before: Json
    after: Json
    sent: Json | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return f"{STATUS} {self.path}"

    @property
    def patch(self) -> Json:
        """The patch that sets `after`, whichever of the earlier patches the cloud has applied.

        It omits other writers' changes between the copies of `before` and `after`, and the resourceVersion, with which
        the cloud would refuse the patch after their next write.
        """
        difference = strategic_diff(
            self.before, self.after, self.kind, [self.sent] if self.sent is not None else []
        )
        metadata = {name: value for name, value in difference.pop("metadata", {}).items() if name in WRITTEN}
        status = {name: value for name, value in difference.items() if name == "status"}
        return {"metadata": metadata, **status} if metadata else status

    def body(self) -> bytes:
        """The patch as a strategic merge patch of exactly this object, by its uid."""
        patch = self.patch
        patch.setdefault("metadata", {})["uid"] = self.uid
        return orjson.dumps(patch)

    def applied_to(self, item: Item) -> Item:
        """Return the object with the node's writes applied; unchanged if it is another object of this name."""
        store = item.store
        form = store.codec.encoding, store.api_version, store.kind, item.raw
        try:
            raw = updated(*form, "PATCH", STRATEGIC_MERGE_PATCH, self.body())
        except (StatusError, ValueError, LookupError):
            return item
        return Item(store, item.key, item.version, item.labels, raw)

    def as_sent(self) -> StatusEntry:
        """Return the entry with the mark that the cloud may have its patch."""
        return self._may_have(strategic_diff(self.before, self.after, self.kind))

    def asked_by(self, patch: Json) -> StatusEntry:
        """Return the entry after a client's patch: each field that the patch sets is sent to the cloud."""
        return self._may_have(emptied(patch, self.kind))

    def _may_have(self, changes: Json) -> StatusEntry:
        known = self.before if self.sent is None else self.sent
        return replace(self, sent=strategic_merge(known, _retained(known, changes), merge_keys_of(self.kind)))

    def dump(self) -> bytes:
        return orjson.dumps([self.path, self.kind, self.uid, self.before, self.after, self.sent])


def _retained(known: Json, changes: Json) -> Json:
    """Return the changes with each removal of an object replaced by unknown values of its fields: the cloud may have
    accepted an earlier patch that set fields in it."""
    retained: Json = {}
    for name, change in changes.items():
        match known.get(name), change:
            case dict() as value, None:
                retained[name] = _unknown(value)
            case dict() as value, dict():
                retained[name] = _retained(value, change)
            case _:
                retained[name] = change
    return retained


def _unknown(value: Json) -> Json:
    """Return the fields of an object, each with a value that differs from every real one."""
    return {name: _unknown(field) if isinstance(field, dict) else UNKNOWN for name, field in value.items()}


class EventEntry(NamedTuple):
    """A request that creates or patches an event, as the client sent it."""

    sequence: int
    method: str
    target: str
    content_type: str
    body: bytes
    path: str
    """The path of the event; "" if the body names none."""
    user: str = ""
    """The user who sent it, without a token; "" for the node."""

    @classmethod
    def of(
        cls, sequence: int, method: str, target: str, content_type: str, body: bytes, user: str = ""
    ) -> EventEntry:
        path = path_of_event(method, target, content_type, body)
        return cls(sequence, method, target, content_type, body, path, user)

    @property
    def name(self) -> str:
        return f"{EVENT} {self.sequence:016d}"

    def dump(self) -> bytes:
        whose = [self.user] if self.user else []
        head = [self.sequence, self.method, self.target, self.content_type, *whose]
        return orjson.dumps(head) + b"\n" + self.body


type JournalEntry = StatusEntry | EventEntry


def parsed(value: bytes) -> JournalEntry:
    """Parse the output of `dump`; ValueError for anything else."""
    head, _, body = value.partition(b"\n")
    match orjson.loads(head):
        case [int(sequence), str(method), str(target), str(content_type)]:
            return EventEntry.of(sequence, method, target, content_type, body)
        case [int(sequence), str(method), str(target), str(content_type), str(user)]:
            return EventEntry.of(sequence, method, target, content_type, body, user)
        case [str(path), str(kind), str(uid), dict(before), dict(after), (dict() | None) as sent]:
            return StatusEntry(path, kind, uid, before, after, sent)
    raise ValueError("it is not a journal entry")


def path_of_event(method: str, target: str, content_type: str, body: bytes) -> str:
    """Return the path of the event that a request creates or patches; "" if its body names none."""
    path = target.partition("?")[0]
    if method != "POST":
        return path
    try:
        codec = codec_for(Encoding(content_type))
        name = codec.peek(codec.decode_single(body)[2]).name
    except ValueError:
        return ""
    return f"{path}/{name}" if name else ""
