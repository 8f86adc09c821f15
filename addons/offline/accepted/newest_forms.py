"""The state that an object has after an accepted write, and how a copy gets it. Pure."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import orjson

from addons.offline.cached_response import NO_OBJECTS, CachedResponse, unpacked
from addons.requests.object_read import ObjectRead
from kube.http.client import RawResponse
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.requests.object_ref import ObjectRef
from kube.requests.request_info import RequestInfo
from kube.requests.resource_versions import parse_version
from kube.requests.selectors import parse_field_selector, parse_label_selector
from kube.schemas.json_objects import json_object
from kube.schemas.recoded import recoded
from kube.store.made_forms import field_of, plain
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object
from kube.wire.negotiation import METADATA_KIND

FULL_OBJECT_SUBRESOURCES = frozenset({"", "status", "finalize", "approval", "ephemeralcontainers", "resize"})
"""Subresources whose writes are answered with the object."""
OWN_KIND_SUBRESOURCES = frozenset({"scale", "binding", "eviction"})
"""Subresources whose answer is an object of their own kind, not the object that they change."""
PARTIAL = ("meta.k8s.io/v1", METADATA_KIND)


class NewestForm(NamedTuple):
    """An object as the answer to a write returned it; without `obj` a deleted one, with this uid."""

    name: str
    version: int
    uid: str
    obj: Encoded | None = None

    @property
    def size(self) -> int:
        return len(self.obj.raw) if self.obj is not None else 0

    def dump(self) -> bytes:
        head: list[Any] = [self.name, self.version, self.uid]
        if self.obj is None:
            return orjson.dumps(head)
        head += [self.obj.codec.encoding, self.obj.api_version, self.obj.kind]
        return orjson.dumps(head) + b"\n" + self.obj.raw

    @classmethod
    def load(cls, row: bytes) -> NewestForm:
        """Parse the output of `dump`; ValueError for anything else."""
        head, _, raw = row.partition(b"\n")
        match orjson.loads(head):
            case [str(name), int(version), str(uid)]:
                return cls(name, version, uid)
            case [str(name), int(version), str(uid), str(encoding), str(api_version), str(kind)]:
                return cls(name, version, uid, Encoded(codec_for(Encoding(encoding)), api_version, kind, raw))
        raise ValueError("it is not an object")


def forms_in(info: RequestInfo, ref: ObjectRef, answer: CachedResponse) -> dict[ObjectRef, NewestForm | None]:
    """Return the objects in the answer to a write of `ref`, each in its new form; None if the answer has none.

    ValueError for an unreadable answer.
    """
    if info.verb != "deletecollection":
        form = _form(info, answer.single())
        return {ref.named(form.name or ref.name): form} if form is not None else {}
    codec = codec_for(answer.encoding)
    page = codec.decode_list(unpacked(answer.headers, answer.body))
    if page.kind in NO_OBJECTS:
        raise ValueError("it is not a list of objects")
    forms: dict[ObjectRef, NewestForm | None] = {}
    for raw in page.items:
        metadata = _metadata(Encoded(codec, page.api_version, page.kind, raw))
        # A pod, and what has finalizers, is there for a while.
        stays = page.kind == "Pod" or metadata.get("finalizers")
        name = str(metadata["name"])
        deleted = ref._replace(namespace=str(metadata.get("namespace") or ""), name=name)
        forms[deleted] = None if stays else NewestForm(name, 0, str(metadata["uid"]))
    return forms


def returns_full_object(info: RequestInfo) -> bool:
    """Whether the answer to a write is an object, and buffered until complete. Other answers may be streams."""
    return info.subresource in FULL_OBJECT_SUBRESOURCES | OWN_KIND_SUBRESOURCES


def name_in(answer: RawResponse) -> str:
    """Return the name of the object in the answer to a write, as a Table or metadata alone too; "" if there is none."""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        tree = _tree(CachedResponse.of(answer.headers, answer.body).single())
        return str((tree["rows"][0]["object"] if "rows" in tree else tree)["metadata"]["name"])
    return ""


def _form(info: RequestInfo, obj: Encoded) -> NewestForm | None:
    if info.verb == "delete" and obj.kind == "Status":
        uid = str((_tree(obj).get("details") or {}).get("uid") or "")
        return NewestForm("", 0, uid) if uid else None
    if info.subresource not in FULL_OBJECT_SUBRESOURCES or obj.kind in NO_OBJECTS:
        return None
    metadata = _metadata(obj)
    name, uid = str(metadata.get("name") or ""), str(metadata.get("uid") or "")
    if not name or not uid:
        return None
    if _is_gone(obj, metadata) or (info.verb == "delete" and not metadata.get("deletionTimestamp")):
        return NewestForm(name, 0, uid)
    return NewestForm(name, parse_version(str(metadata.get("resourceVersion") or "")), uid, obj)


def _is_gone(obj: Encoded, metadata: Json) -> bool:
    """Whether a write has removed the object in its answer: neither a grace period nor a finalizer delays its deletion.

    That is so for a deletion without grace, and for the update that removes the last finalizer.
    """
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if obj.kind == "Namespace":
        return not (_tree(obj).get("spec") or {}).get("finalizers")
    return metadata.get("deletionGracePeriodSeconds") == 0


def _tree(obj: Encoded) -> Json:
    if obj.codec.encoding is Encoding.JSON:
        tree: Json = parse_object(obj.raw)
        return tree
    return json_object(obj.api_version, obj.kind, obj.raw)


def _metadata(obj: Encoded) -> Json:
    """Return the metadata of an object of any kind."""
    found = _tree(Encoded(obj.codec, *PARTIAL, obj.raw)).get("metadata")
    if not isinstance(found, dict):
        raise ValueError("it has no metadata")
    return found


def update_copy(store: Store, list_watch: ListWatch, ref: ObjectRef, form: NewestForm) -> None:
    """Update a copy with an object's state if that is newer. A state that cannot be converted is ignored."""
    key = ref.namespace, ref.name
    held = store.get(key)
    try:
        if form.obj is None:
            if held is not None and held.decode().uid == form.uid:
                store.apply_response(key, None)
        elif store.version < form.version:
            raw = raw_in(store, form.obj, metadata_only=list_watch.metadata_only)
            if raw is not None and _is_selected(store, list_watch, raw):
                store.apply_response(key, raw)
            elif raw is not None:
                store.apply_response(key, None)
    except (ValueError, LookupError):
        return


def raw_in(store: Store, obj: Encoded, *, metadata_only: bool = False) -> bytes | None:
    """Convert an object to the form in which a store holds its objects; None if it has another API version."""
    if (obj.api_version, obj.kind) != (store.api_version, store.kind) and not metadata_only:
        return None
    found = recoded(obj, store.codec.encoding)
    return store.codec.metadata_only(found.raw) if metadata_only else found.raw


def _is_selected(store: Store, list_watch: ListWatch, raw: bytes) -> bool:
    (item,) = store.items(store.codec, [raw]).values()
    if list_watch.namespace not in ("", item.key[0]):
        return False
    labels = parse_label_selector(list_watch.label_selector)
    fields = parse_field_selector(list_watch.field_selector)
    return labels.matches(item.labels) and fields.matches(field_of(plain(item)))


def may_hold(list_watch: ListWatch, ref: ObjectRef) -> bool:
    """Whether a copy may hold an object, or an object of a reference."""
    of = ObjectRef.of_type(list_watch.type, list_watch.namespace)
    first = list_watch.field_selector.split(",")[0]
    return of.named(first.removeprefix("metadata.name=") if first.startswith("metadata.name=") else "").meets(
        ref
    )


def update_cached_list(store: Store, read: ObjectRead, ref: ObjectRef, form: NewestForm) -> None:
    """Replace the object in a cached list by its newest state; ValueError and LookupError if that is impossible.

    The object keeps its own version: no client watches the list.
    """
    key = ref.namespace, ref.name
    held = store.get(key)
    if form.obj is None:
        if held is not None and held.decode().uid == form.uid:
            store.apply("DELETED", held.raw)
    elif form.version > store.version:
        raw = raw_in(store, form.obj)
        if raw is None:
            raise ValueError("it has another API version")
        of = ListWatch(read.type, read.namespace, read.labels.canonical, read.fields.canonical)
        if _is_selected(store, of, raw):
            store.apply("MODIFIED", raw)
        elif held is not None:
            store.apply("DELETED", held.raw)
