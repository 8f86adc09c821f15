"""Accepts kubelet's status of its node and pods while the cloud is away: merges it into the copies and journals it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import NamedTuple

from addons.offline.cached_response import CachedResponse, newest_object
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_reads import OfflineReads
from addons.offline.offline_request import OfflineRequest
from addons.offline.writes.journal import Journal
from addons.offline.writes.journal_entries import StatusEntry
from addons.requests.answers import Answer
from addons.requests.cloud_identity import HUB_IDENTITY
from kube.errors import MAX_QUOTED, StatusError, not_acceptable, unavailable
from kube.http.client import Client
from kube.json_type import Json
from kube.objects.object_patches import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from kube.objects.status_update import status_document, updated
from kube.requests.object_ref import ObjectRef
from kube.requests.request_info import parse_request
from kube.store.store import Item, Store
from kube.wire.api_objects import ApiObject
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object

KUBELETS = frozenset(
    {
        *("kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch"),
        *("beta.kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type"),
        *("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
        *("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"),
        *("node.kubernetes.io/instance-type", "node.kubernetes.io/windows-build"),
    }
)
"""Labels of its Node that kubelet sets and repairs at each start."""

logger = logging.getLogger(__name__)


class ObjectCopy(NamedTuple):
    """A copy of an object: an item of a store, or (if `store` is None) the cloud's cached answer to a GET."""

    object: Encoded
    store: Store | None = None

    @property
    def form(self) -> tuple[Encoding, str, str, bytes]:
        """Return the object in the form that the functions of `kube.objects.status_update` accept."""
        return self.object.codec.encoding, self.object.api_version, self.object.kind, self.object.raw

    def written(self, request: OfflineRequest) -> ObjectCopy:
        """Return the copy after a write; StatusError if kube-apiserver would refuse the write."""
        raw = updated(*self.form, request.info.method, request.content_type, request.body)
        return ObjectCopy(self.object._replace(raw=raw), self.store)

    def entry(self, path: str, after: ObjectCopy) -> StatusEntry:
        """Return the journal's entry for a write that made `after` of this copy."""
        before, now = status_document(*self.form), status_document(*after.form)
        return StatusEntry(path, self.object.kind, after.object.decode().uid, before, now)


class StatusWrites:
    """Applies a status write to every copy of the object that the hub has, in each copy's encoding."""

    def __init__(
        self, node: str, objects: OfflineReads, answers: CachedResponses, journal: Journal, client: Client
    ) -> None:
        """`client` reads an object from the cloud whose form replaces the node's."""
        self._node = node
        self._objects = objects
        self._answers = answers
        self._journal = journal
        self._client = client
        self._lock = asyncio.Lock()
        """Held during a write: the next one must start from its result."""

    async def accept(self, request: OfflineRequest, *, was_sent: bool = False) -> Answer:
        """Return the answer to a PATCH or PUT of a status. `was_sent`: the cloud may have accepted it.

        StatusError 503 if the hub has no copy of the object, if the object is neither this node nor one of its pods, or
        if the write changes labels that a kubelet may not decide: watchers on this node must not see that before the
        cloud has decided.
        """
        path = request.object_path
        async with self._lock:
            copies = await self._copies_of(request)
            if not copies:
                raise unavailable(f"the cloud cannot be reached, and the hub has no copy of {path}")
            if not all(self._is_own(copy.object.decode()) for copy in copies):
                raise unavailable(f"the cloud cannot be reached, and {path} does not belong to this node")
            # In a thread, because a status of megabytes takes seconds.
            written, entry = await asyncio.to_thread(_written, copies, request)
            encodings = request.encodings()
            if not encodings:
                raise not_acceptable("the answer is JSON or protobuf")
            self._journal.check_capacity(entry)
            # Clients that watch or get the object from now on see the write, whoever owns the cached responses.
            for copy in written:
                if copy.store is not None:
                    copy.store.amend(copy.object.raw)
            if (ref := ObjectRef.of(request.info)) is not None:
                self._answers.renew(ref, CachedResponse.of_object(written[0].object))
            entry = self._journal.put_status(entry, was_sent=was_sent, patch=_patch_in(request))
        await self._journal.wait_written(entry)
        newest = written[0].object
        same = [copy.object for copy in written if copy.object.decode().version == newest.decode().version]
        accepted = (obj for encoding in encodings for obj in same if obj.codec.encoding is encoding)
        return request.answered(next(accepted, newest))

    async def reload_copies(self, entry: StatusEntry) -> None:
        """Replace the copies of an object by the cloud's, which no event brings; Unreachable as in `Client.request`.

        If a newer status is pending, the copies stay.
        """
        for item in await self._objects.find(HUB_IDENTITY, parse_request("GET", entry.path)):
            codec = item.store.codec
            try:
                answer = await self._client.request("GET", entry.path, accept=codec.encoding)
                is_newest = self._journal.statuses.get(entry.path) is entry
                if is_newest and answer.content_type == codec.encoding:
                    item.store.amend(codec.decode_single(answer.body)[2])
            except (StatusError, ValueError) as error:
                logger.warning("%s keeps the node's status: %s", entry.path, error)

    def _is_own(self, obj: ApiObject) -> bool:
        """Whether an object is this node, or a pod that runs on it."""
        if obj.kind == "Node":
            return obj.name == self._node
        return obj.fields.child("spec").text("nodeName") == self._node

    async def _copies_of(self, request: OfflineRequest) -> list[ObjectCopy]:
        """The copies that a write applies to, newest first. Older ones that it does not fit stay unchanged.

        They may be of an earlier object with the same name, or from before the pod was bound to this node.
        """
        items = await self._objects.find(HUB_IDENTITY, request.info)
        copies = [(item.version, ObjectCopy(_encoded(item), item.store)) for item in items]
        # The other forms of the cached object become its newest one.
        answer = newest_object(await self._answers.in_all_forms(request.read_key("")))
        if answer is not None:
            copies.append((answer.version(), ObjectCopy(answer.single())))
        newest_first = [copy for _, copy in sorted(copies, key=lambda copy: copy[0], reverse=True)]
        # In a thread: each older copy is changed like the newest.
        return await asyncio.to_thread(self._fitting, newest_first, request)

    def _fitting(self, copies: list[ObjectCopy], request: OfflineRequest) -> list[ObjectCopy]:
        fitting: list[ObjectCopy] = []
        for copy in copies:
            # A cached response may be a Table or metadata only, to which no status can be written.
            with contextlib.suppress(ValueError, LookupError):
                status_document(*copy.form)
                if not fitting or self._fits(copy, fitting[0], request):
                    fitting.append(copy)
        return fitting

    def _fits(self, older: ObjectCopy, newest: ObjectCopy, request: OfflineRequest) -> bool:
        """Whether a write that fits the newest copy fits an older one, too."""
        before = older.object.decode()
        if before.uid != newest.object.decode().uid or not self._is_own(before):
            return False
        try:
            _check_labels(before, older.written(request).object.decode(), "")
        except StatusError:
            return False
        return True


def _encoded(item: Item) -> Encoded:
    store = item.store
    return Encoded(store.codec, store.api_version, store.kind, item.raw)


def _patch_in(request: OfflineRequest) -> Json | None:
    """Return the fields that a client's patch sets; None for a PUT and a JSON patch, for which the difference to the
    copy counts."""
    if request.content_type not in (MERGE_PATCH, STRATEGIC_MERGE_PATCH):
        return None
    return parse_object(request.body)


def _written(copies: list[ObjectCopy], request: OfflineRequest) -> tuple[list[ObjectCopy], StatusEntry]:
    """Return the copies after a write, and the journal's entry for it; StatusError as in `StatusWrites.accept`."""
    path = request.object_path
    written = [copy.written(request) for copy in copies]
    for before, after in zip(copies, written, strict=True):
        _check_labels(before.object.decode(), after.object.decode(), path)
    return written, copies[0].entry(path, written[0])


def _check_labels(before: ApiObject, after: ApiObject, path: str) -> None:
    others = labels_of_others(before.kind, before.labels, after.labels)
    if others:
        shown = ", ".join(others)[:MAX_QUOTED]
        raise unavailable(f"the cloud cannot be reached, and only it changes these labels of {path}: {shown}")


def labels_of_others(kind: str, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the changed labels that kubelet may not decide: all of a Pod, most of a Node."""
    changed = {key for key, _ in before.items() ^ after.items()}
    return sorted(changed - KUBELETS if kind == "Node" else changed)
