"""The node's Lease: the hub answers kubelet's renewals itself, and renews the Lease in the cloud while kubelet lives.

So a flapping link does not make the cluster consider a living kubelet dead, and a dead kubelet is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import time
from collections.abc import Callable
from typing import Any

import orjson

from addons.link.health import Cloud
from addons.offline.cached_response import ResponseKey, response_key
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_request import OfflineRequest
from addons.requests.answers import Answer, ClientRequest, ClientStream, RelayToCloud
from addons.requests.offline_policy import LEASE_NAMESPACE
from addons.telemetry import metrics
from kube.concurrency.notifier import Notifier, completes_within
from kube.errors import StatusError, bad_request, conflict, forbidden, not_found, unavailable
from kube.fleet import ANNOTATION
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.objects.object_patches import MERGE_PATCH
from kube.requests.request_info import ResourceType
from kube.tables.cells import parse_time
from kube.wire.codec import codec_for
from kube.wire.codec_base import write_version
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding

LEASES = ResourceType("coordination.k8s.io", "v1", "leases")
DEFAULT_DURATION = 40.0
"""Seconds for which a renewal by kubelet is valid if its Lease names no duration."""
RENEWALS = 4
"""Renewals in the cloud within a Lease's duration, as many as kubelet makes."""
RETRY_INTERVAL = 2.0
"""Seconds from a failed renewal to the next one."""
AUDIT_ID = "edgehub-lease-"
"""The audit id of all renewals, with the node's name; kube-apiserver repeats it instead of making one each time.

HPACK sends a constant id as one byte, not 31: with a renewal every ten seconds, that is 0.26 of the 4.3 MB a day of a
quiet node, 6 %.
"""
CHANGED = "the object has been modified; please apply your changes to the latest version and try again"
LATEST = datetime.datetime(9998, 1, 1, tzinfo=datetime.UTC)
"""A renewTime later than this is ignored: any client with the right may have written it, and no later time would
follow."""
TIMEOUT = 10.0
"""Seconds within which a renewal must be answered; then the next one is due."""

logger = logging.getLogger(__name__)


class NodeLease:
    """Answers requests for this node's Lease, and runs the task that renews the Lease in the cloud."""

    def __init__(
        self,
        node: str,
        client: Client,
        answers: CachedResponses,
        cloud: Cloud,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is monotonic."""
        self._node = node
        self._path = LEASES.path(LEASE_NAMESPACE, node)
        self._client = client
        self._answers = answers
        self._cloud = cloud
        self._clock = clock
        self._lease: Encoded | None = None
        """The Lease as kubelet last wrote it, or as the cloud had it when kubelet read it."""
        self._renewed_at: float | None = None
        """When kubelet last renewed the Lease, by `clock`."""
        self._is_gone = False
        """Whether the cloud has deleted the Lease: kubelet must create one, for the new Node."""
        self._renewed = Notifier()
        self._pushed = b""
        """The `_fields_to_compare` of the cloud's Lease."""
        self._written: Json | None = None
        """The spec that the cloud got with the last renewal, without its time; None after a failure or a push."""
        self._status = self._acknowledged = ""
        """The hub's status, and the status in the cloud's Lease."""
        self._last_stamp: tuple[datetime.datetime, float] | None = None
        """The latest renewTime in the cloud, and when that was by `clock`."""

    def describe(self) -> dict[str, Any]:
        """Return the state of the Lease for the debug page."""
        age = None if self._renewed_at is None else round(self._clock() - self._renewed_at, 1)
        return {"node": self._node, "secondsSinceKubelet": age, "renewing": self.is_alive()}

    def publish_status(self, status: str) -> None:
        """Write a `kube.fleet.HubStatus` to the cloud's Lease with its next renewal."""
        self._status = status

    async def answer(self, wanted: ClientRequest, _stream: ClientStream) -> Answer:
        """Answer a GET, POST, PUT or PATCH of the Lease; StatusError as kube-apiserver.

        RelayToCloud for a dry run, for a server-side apply, because only the cloud knows the owners of fields, and if
        the body is YAML or the answer is no complete object.
        """
        request = OfflineRequest.of(wanted.info, wanted.target, wanted.headers, wanted.body)
        if request.is_dry_run or request.is_for_cloud or not request.encodings():
            raise RelayToCloud
        match wanted.info.verb:
            case "get":
                return await self._get(request)
            case "create":
                return await self._create(request)
            case "patch":
                return await self._patch(request)
            case _:
                return await self._update(request)

    async def run(self) -> None:
        """Renew the cloud's Lease until cancelled, while kubelet renews its own."""
        while True:
            if not self.is_alive():
                await self._renewed.wait()
            elif not self._cloud.is_up:
                await self._cloud.changed.wait()
            else:
                moved = self._cloud.changed.wait()
                done = await self._renew()
                metrics.LEASE_RENEWALS.labels("ok" if done else "failed").inc()
                if done:
                    moved.cancel()
                    await self._until_due()
                else:
                    self._written = None
                    # Another server or uplink may have come up since this one failed.
                    await completes_within(RETRY_INTERVAL, moved)

    async def _until_due(self) -> None:
        """Return when the Lease must be renewed in the cloud again.

        The duration is the Lease's at that moment, so a Lease of years delays no renewal after kubelet's next one.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        while await completes_within(began + self._duration / RENEWALS - loop.time(), self._renewed.wait()):
            pass

    async def _get(self, request: OfflineRequest) -> Answer:
        return request.answered(self._lease or await self._learn(request))

    async def _create(self, request: OfflineRequest) -> Answer:
        codec, obj = request.named("Lease")
        if obj.name != self._node:
            raise forbidden(f"a node creates only its own Lease, not {obj.name}")
        made = Encoded.of(codec, obj)
        if self._cloud.is_up:
            try:
                made = await self._request("POST", LEASES.path(LEASE_NAMESPACE), request, made.body())
                self._pushed = _fields_to_compare(made)
            except Unreachable as error:
                logger.info("the Lease is created later: %s", error)
        elif self._lease is not None:
            raise StatusError(
                409, "AlreadyExists", f'leases.coordination.k8s.io "{self._node}" already exists'
            )
        answer = request.answered(made, 201)
        self._note_renewal(made)
        return answer

    async def _update(self, request: OfflineRequest) -> Answer:
        codec, obj = request.decoded("Lease")
        if obj.name != self._node:
            raise bad_request("the name of the object does not match the name on the URL")
        # A kube-apiserver compares the uid first. kubelet reads the Lease after either answer.
        if obj.uid and (self._is_gone or not await self._has_uid(obj.uid, request)):
            raise conflict(CHANGED)
        if self._is_gone:
            raise self._not_found()
        lease = Encoded.of(codec, obj)
        answer = request.answered(lease)
        self._note_renewal(lease)
        return answer

    async def _patch(self, request: OfflineRequest) -> Answer:
        """Answer a PATCH as the equivalent PUT."""
        known = self._lease or await self._learn(request)
        return await self._update(request.patched(known))

    async def _has_uid(self, uid: str, request: OfflineRequest) -> bool:
        """Whether the Lease may have this uid. kubelet may have created it anew without the hub: the cloud tells."""
        lease = self._lease
        if lease is None or lease.decode().uid in ("", uid):
            return True
        if self._cloud.is_up:
            with contextlib.suppress(Unreachable):
                self._lease = lease = await self._request("GET", self._path, request, None)
        return lease.decode().uid == uid

    def _note_renewal(self, lease: Encoded) -> None:
        """Store the Lease that kubelet has just written: kubelet is alive."""
        is_new = (
            self._lease is None
            or self._lease.codec is not lease.codec
            or _fields_to_compare(self._lease) != _fields_to_compare(lease)
        )
        self._lease, self._renewed_at, self._is_gone = lease, self._clock(), False
        if is_new:
            self._keep(lease)
        self._renewed.notify()

    def _keep(self, lease: Encoded) -> None:
        """Store the Lease on disk, for a kubelet that starts behind a restarted hub in an outage."""
        codec = lease.codec
        self._forget_stored()
        self._answers.cache_response(
            self._key(codec.encoding), {"content-type": codec.content_type}, lease.body()
        )

    async def _learn(self, request: OfflineRequest) -> Encoded:
        """Return the cloud's Lease, or the stored one while the cloud is away; StatusError if there is neither."""
        if self._cloud.is_up:
            try:
                lease = await self._request("GET", self._path, request, None)
            except Unreachable as error:
                logger.info("the Lease cannot be read: %s", error)
            else:
                if self._lease is None:
                    self._lease, self._is_gone = lease, False
                    self._keep(lease)  # a renewal changes nothing that would be cached
                return lease
        for encoding in Encoding:
            answer = await self._answers.get(self._key(encoding))
            if answer is not None:
                with contextlib.suppress(ValueError):
                    return checked(answer.single())
        raise unavailable("the cloud cannot be reached, and the hub has not seen the node's Lease")

    async def _request(self, method: str, path: str, request: OfflineRequest, body: bytes | None) -> Encoded:
        # Only full objects: a Table, which the client may accept as well, could not be stored for kubelet.
        accept, content_type = ",".join(request.encodings()), request.content_type or Encoding.JSON
        answer = await self._client.request(
            method, path, body=body, accept=accept, content_type=content_type, timeout=TIMEOUT
        )
        try:
            codec = codec_for(Encoding(answer.content_type))
            return checked(Encoded.read(codec, answer.body))
        except ValueError as error:
            raise Unreachable(f"{method} {path}: the answer cannot be read: {error}") from error

    async def _renew(self) -> bool:
        assert self._lease is not None
        try:
            if _fields_to_compare(self._lease) != self._pushed:
                await self._push(self._lease)
            # After a push too, which carries kubelet's own renewTime: the cloud may have seen a later one.
            await self._touch(self._lease)
        except (StatusError, Unreachable, ValueError) as error:
            if isinstance(error, StatusError) and error.code == 404:
                self._drop_lease()
            logger.info("the Lease is not renewed: %s", error)
            return False
        except Exception:
            # The task must live on: without renewals the cluster would take a living node for dead.
            logger.exception("the Lease is not renewed")
            return False
        return True

    def _drop_lease(self) -> None:
        """Drop a Lease that the cloud has deleted, and kubelet's writes to it.

        The garbage collector deletes the Lease of a deleted Node, and would delete one that the hub recreated from it,
        because its owner is the previous Node.
        """
        logger.warning("this node's Lease in the cloud is gone or replaced: kubelet creates it again")
        self._lease, self._renewed_at, self._is_gone = None, None, True
        self._pushed = b""
        self._forget_stored()

    def _forget_stored(self) -> None:
        for encoding in Encoding:
            self._answers.forget(self._key(encoding).name)

    def _not_found(self) -> StatusError:
        return not_found(f"{LEASES.resource}.{LEASES.group}", self._node)

    async def _push(self, lease: Encoded) -> None:
        """Write the complete Lease to the cloud: the first time, and when kubelet has changed its metadata."""
        content_type = lease.codec.content_type
        try:
            answer = await self._client.request("GET", self._path, timeout=TIMEOUT)
        except StatusError as error:
            if error.code != 404 or lease.decode().uid:
                raise  # one that kubelet has from the cloud is not to be made by the hub
            path, method, version = LEASES.path(LEASE_NAMESPACE), "POST", 0
        else:
            known = Encoded.read(codec_for(Encoding.JSON), answer.body).decode()
            if lease.decode().uid not in ("", known.uid):
                raise self._not_found()
            path, method, version = self._path, "PUT", known.version
            self._note_time(known.fields.child("spec").text("renewTime"))
            # A hub that has just started reports its status later: the fleet shows the previous one until then.
            self._status = self._status or known.annotations.get(ANNOTATION, "")
        body = _replacement_body(lease, version, self._status)
        await self._client.request(method, path, body=body, content_type=content_type, timeout=TIMEOUT)
        self._pushed, self._acknowledged, self._written = _fields_to_compare(lease), self._status, None

    async def _touch(self, lease: Encoded) -> None:
        spec = lease.decode().fields.child("spec")
        holder: Json = {
            "holderIdentity": spec.text("holderIdentity"),
            "leaseDurationSeconds": spec.number("leaseDurationSeconds") or int(DEFAULT_DURATION),
        }
        patch: Json = {"spec": {"renewTime": self._renewal_time().strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}
        status = self._status
        if holder != self._written:
            patch["spec"] |= holder
        if status != self._acknowledged:
            patch["metadata"] = {"annotations": {ANNOTATION: status}}
        # The hub does not read the Lease in the answer, so it asks for none.
        headers = {"Prefer": "return=minimal", "Audit-Id": AUDIT_ID + self._node}
        client, body = self._client.with_headers(headers), orjson.dumps(patch)
        await client.request(
            "PATCH", self._path, body=body, content_type=MERGE_PATCH, codings="identity", timeout=TIMEOUT
        )
        self._acknowledged, self._written = status, holder

    def _note_time(self, renewed: str) -> None:
        """Record the renewTime in the cloud, which an earlier process with another clock may have written.

        The node lifecycle controller ignores a time earlier than the latest that it has seen.
        """
        stamp = parse_time(renewed)
        if stamp is not None and stamp < LATEST and self._last_stamp is None:
            self._last_stamp = (stamp, self._clock())

    def _renewal_time(self) -> datetime.datetime:
        """Return the time of a renewal: now, but never earlier than before the clock was set back, or the node would
        look dead."""
        wall, clock = datetime.datetime.now(datetime.UTC), self._clock()
        if self._last_stamp is not None:
            stamped, at = self._last_stamp
            wall = max(wall, stamped + datetime.timedelta(seconds=clock - at))
        self._last_stamp = (wall, clock)
        return wall

    def is_alive(self) -> bool:
        """Whether kubelet renews its Lease."""
        return self._renewed_at is not None and self._clock() - self._renewed_at < self._duration

    @property
    def _duration(self) -> float:
        """Seconds for which a renewal by kubelet is valid."""
        assert self._lease is not None
        return duration_of(self._lease)

    def _key(self, encoding: Encoding) -> ResponseKey:
        return response_key("", self._path, f"the lease as {encoding}", "")


def checked(lease: Encoded) -> Encoded:
    """Return the object if it is a readable Lease; ValueError otherwise."""
    if lease.kind != "Lease":
        raise ValueError(f"it is a {lease.kind or 'nothing'}, not a Lease")
    lease.decode()
    return lease


def duration_of(lease: Encoded) -> float:
    """Return the seconds for which a renewal of a Lease is valid."""
    written = lease.decode().fields.child("spec").number("leaseDurationSeconds")
    return written if written > 0 else DEFAULT_DURATION


def _fields_to_compare(lease: Encoded) -> bytes:
    """Return the fields of a Lease that a renewal does not change."""
    return lease.codec.metadata_only(lease.codec.with_version(lease.raw, 0))


def _replacement_body(lease: Encoded, version: int, status: str) -> bytes:
    """Return the body that replaces the cloud's Lease of `version`, or creates one (0), with the hub's status."""
    obj = lease.decode()
    metadata = obj.fields.child("metadata")
    metadata.clear("uid")
    metadata.set("resourceVersion", write_version(version))
    if status:
        metadata.set_mapping("annotations", {**obj.annotations, ANNOTATION: status})
    return Encoded.of(lease.codec, obj).body()
