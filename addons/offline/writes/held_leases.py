"""Leases by which the pods of this node elect a leader: while the cloud is away, the holder renews at the hub.

Only Leases that the rules name (`offline_leases`). The hub elects nobody: whoever held the Lease when the link was cut
goes on. It gives no new version, so the cloud answers 409 later where somebody else took the Lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from addons.offline.cached_response import CachedResponse
from addons.offline.node_lease import LEASES, checked, duration_of
from addons.offline.offline_request import OfflineRequest
from addons.requests.answers import Answer, object_answer
from kube.bounds import reached
from kube.errors import bad_request, conflict, unavailable
from kube.http.client import RawResponse
from kube.requests.request_info import RequestInfo
from kube.store.store import Key
from kube.wire.codec_base import write_version
from kube.wire.encoded_objects import Encoded

MAX_LEASE = 16 * 1024
"""The most bytes of one Lease: a hundred times what a leader writes."""


class Held(NamedTuple):
    """A Lease as the cloud had it last, or as its holder renewed it since."""

    lease: Encoded
    version: int
    writer: str | None
    """The user who wrote it through this hub; None: somebody elsewhere did."""
    renewed: float


class HeldLeases:
    """The named Leases that passed since the start. After a restart without the cloud nobody renews any."""

    def __init__(
        self, named: Callable[[], Collection[Key]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`named` gives the Leases of the rules in force; `clock` is monotonic."""
        self._named = named
        self._clock = clock
        self._held: dict[Key, Held] = {}

    def keep(self, user: str, request: OfflineRequest, answer: RawResponse) -> None:
        """Take the cloud's answer to a user's read or write of a Lease."""
        key = self._key(request.info)
        if key is None:
            return
        if answer.status in (404, 409):
            self._held.pop(key, None)  # it is gone, or somebody else wrote it
        if answer.status != 200:
            return
        try:
            if len(answer.body) > MAX_LEASE:
                reached("lease of a pod")
                raise ValueError("the Lease is too large")
            lease = checked(CachedResponse.of(answer.headers, answer.body).single())
            version = lease.decode().version
        except (ValueError, LookupError):
            self._held.pop(key, None)
            return
        known = self._held.get(key)
        if known is None or version > known.version:
            writer = None if request.info.method == "GET" else user
            self._held[key] = Held(lease, version, writer, self._clock())
        for name in self._held.keys() - {*self._named()}:
            del self._held[name]

    def answer(self, user: str, request: OfflineRequest) -> Answer | None:
        """The answer in the cloud's place; None where the hub has not seen the Lease.

        StatusError 503 for a write of anybody but its holder, 409 for one of another version.
        """
        key = self._key(request.info)
        held = self._held.get(key) if key is not None else None
        if key is None or held is None:
            return None
        if request.info.method == "GET":
            return object_answer(held.lease) if held.lease.codec.encoding in request.encodings() else None
        if request.is_apply:
            raise unavailable("the cloud cannot be reached, and only it applies a Lease")
        codec, obj = request.patched(held.lease).decoded("Lease")
        if (obj.namespace or key[0], obj.name) != key:
            raise bad_request("the name of the object does not match the name on the URL")
        holder = obj.fields.child("spec").text("holderIdentity")
        if held.writer != user or not holder or holder != _holder(held.lease):
            raise unavailable("the cloud cannot be reached, and only its holder renews this Lease meanwhile")
        if self._clock() - held.renewed > duration_of(held.lease):
            raise unavailable("the cloud cannot be reached, and this Lease has expired")
        if obj.version not in (0, held.version):
            raise conflict("the object has been modified; please apply your changes to the latest version")
        request.check_accepted(codec)
        obj.fields.child("metadata").set("resourceVersion", write_version(held.version))
        lease = Encoded.of(codec, obj)
        if len(lease.raw) > MAX_LEASE:
            reached("lease of a pod")
            raise unavailable("the cloud cannot be reached, and this Lease is too large for the hub")
        self._held[key] = held._replace(lease=lease, renewed=self._clock())
        return object_answer(lease)

    def _key(self, info: RequestInfo) -> Key | None:
        """The Lease that a request is about, where the rules name it."""
        if info.type is None or (info.type.group, info.type.resource) != (LEASES.group, LEASES.resource):
            return None
        key = info.namespace, info.name
        return key if key in self._named() else None


def _holder(lease: Encoded) -> str:
    return lease.decode().fields.child("spec").text("holderIdentity")
