"""Leases by which pods of this node elect a leader: while the cloud is away, the holder renews its Lease at the hub.

Only Leases that the rules name (`offline_leases`). The hub elects no leader: the holder at the beginning of the outage
stays. The hub issues no new version, so the cloud later answers 409 if another client has acquired the Lease.

The disk has each Lease as of the last change of its holder: writing each renewal would wear out the disk. So after a
restart in an outage the hub knows the holder, but neither the time nor the version of the last renewal: the holder
names that version, and has the duration of the Lease, from the start on, to renew it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import orjson

from addons.offline.cached_response import CachedResponse
from addons.offline.node_lease import LEASES, checked, duration_of
from addons.offline.offline_request import OfflineRequest
from addons.offline.tables.disk_access import DiskAccess
from addons.offline.tables.write_behind import WriteBehind
from addons.requests.answers import Answer
from kube.bounds import reached
from kube.disk.rows import table_of
from kube.errors import bad_request, conflict, unavailable
from kube.http.client import RawResponse
from kube.requests.request_info import RequestInfo
from kube.store.store import Key
from kube.wire.codec import codec_for
from kube.wire.codec_base import write_version
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding

MAX_LEASE = 16 * 1024
"""Maximum bytes of one Lease: a hundred times a leader's."""
TABLE = table_of("leases")
"""The table on disk: Leases by namespace and name."""


class Held(NamedTuple):
    """A Lease as the cloud last had it, or as its holder renewed it since."""

    lease: Encoded
    version: int
    writer: str | None
    """The user who last wrote it through this hub; None if a client of another server wrote it."""
    renewed: float

    @property
    def holder(self) -> str:
        return self.lease.decode().fields.child("spec").text("holderIdentity")

    def dump(self) -> bytes:
        codec, api_version, kind, raw = self.lease
        return orjson.dumps([self.version, self.writer, codec.encoding, api_version, kind]) + b"\n" + raw

    @classmethod
    def load(cls, row: bytes, now: float) -> Held:
        """Parse the output of `dump`, as a Lease renewed `now`; ValueError for anything else."""
        head, _, raw = row.partition(b"\n")
        match orjson.loads(head):
            case [int(version), str() | None as writer, str(encoding), str(api_version), str(kind)]:
                lease = Encoded(codec_for(Encoding(encoding)), api_version, kind, raw)
                return cls(checked(lease), version, writer, now)
        raise ValueError("it is no Lease")


class OfflineLeases:
    """The named Leases that passed through since the start, and those whose holder is on disk."""

    def __init__(self, access: DiskAccess, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is monotonic."""
        self._clock = clock
        self.named: Collection[Key] = ()
        """The Leases of the rules in force."""
        self._held: dict[Key, Held] = {}
        self._rows = WriteBehind(access, TABLE)
        access.on_loss.append(self._write_all)

    async def open(self) -> None:
        """Load an earlier process's Leases."""
        await self._rows.open(self._take)

    def cache_lease(self, user: str, request: OfflineRequest, answer: RawResponse) -> None:
        """Store the Lease in the cloud's answer to a user's read or write."""
        key = self._key(request.info)
        if key is None:
            return
        if answer.status in (404, 409):
            self._drop(key)  # it is gone, or another client wrote it
        if answer.status != 200:
            return
        try:
            if len(answer.body) > MAX_LEASE:
                reached("lease of a pod")
                raise ValueError("the Lease is too large")
            lease = checked(CachedResponse.of(answer.headers, answer.body).single())
            version = lease.decode().version
        except (ValueError, LookupError):
            self._drop(key)
            return
        known = self._held.get(key)
        if known is None or version > known.version:
            writer = None if request.info.method == "GET" else user
            held = self._held[key] = Held(lease, version, writer, self._clock())
            if known is None or (known.writer, known.holder) != (writer, held.holder):
                self._write(key)
        for name in self._held.keys() - {*self.named}:
            self._drop(name)

    def answer(self, user: str, request: OfflineRequest) -> Answer | None:
        """Return the offline answer; None if the hub does not know the Lease, and for a dry run.

        StatusError 503 for a write by another client than the holder, 409 for one with an older version.
        """
        key = self._key(request.info)
        held = self._held.get(key) if key is not None else None
        if key is None or held is None or request.is_dry_run:
            return None
        if request.info.method == "GET":
            return request.answered(held.lease)
        if request.is_for_cloud:
            raise unavailable(f"the cloud cannot be reached, and only it takes {request.content_type}")
        codec, obj = request.patched(held.lease).decoded("Lease")
        if (obj.namespace or key[0], obj.name) != key:
            raise bad_request("the name of the object does not match the name on the URL")
        holder = obj.fields.child("spec").text("holderIdentity")
        if held.writer != user or not holder or holder != held.holder:
            raise unavailable("the cloud cannot be reached, and only its holder renews this Lease meanwhile")
        if self._clock() - held.renewed > duration_of(held.lease):
            raise unavailable("the cloud cannot be reached, and this Lease has expired")
        if 0 < obj.version < held.version:
            raise conflict("the object has been modified; please apply your changes to the latest version")
        version = max(obj.version, held.version)
        obj.fields.child("metadata").set("resourceVersion", write_version(version))
        lease = Encoded.of(codec, obj)
        if len(lease.raw) > MAX_LEASE:
            reached("lease of a pod")
            raise unavailable("the cloud cannot be reached, and this Lease is too large for the hub")
        answer = request.answered(lease)
        self._held[key] = held._replace(lease=lease, version=version, renewed=self._clock())
        return answer

    def forget_all(self) -> None:
        """Drop the Leases from before a restore of the cloud from a backup: its versions may be lower now."""
        for key in list(self._held):
            self._drop(key)

    def _write(self, key: Key) -> None:
        self._rows.put("/".join(key), self._held[key].dump(), is_urgent=True)

    def _write_all(self) -> None:
        for key in self._held:
            self._write(key)

    def _drop(self, key: Key) -> None:
        self._held.pop(key, None)
        self._rows.delete("/".join(key), may_be_unread=True)

    def _take(self, rows: Mapping[str, bytes | None]) -> Collection[str]:
        unwanted = []
        for row, value in rows.items():
            namespace, _, name = row.partition("/")
            try:
                held = Held.load(value or b"", self._clock())
            except (ValueError, LookupError):
                unwanted.append(row)
                continue
            self._held.setdefault((namespace, name), held)  # changes since the start are newer
        return unwanted

    def _key(self, info: RequestInfo) -> Key | None:
        """Return the Lease that a request is about, if the rules name it."""
        if info.type is None or (info.type.group, info.type.resource) != (LEASES.group, LEASES.resource):
            return None
        key = info.namespace, info.name
        return key if key in self.named else None
