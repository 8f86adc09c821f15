"""Kubelet's sign of life: its lease is answered by the node at all times, and renewed in the cloud while kubelet lives.

So a living kubelet is not taken for dead because of a link that flaps, and a dead one is not taken for alive.
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
from aiohttp import web

from addons.offline.cached_responses import CachedResponses, answer_name
from addons.offline.offline_request import OfflineRequest, response
from addons.requests.offline_policy import LEASE_NAMESPACE
from addons.requests.request_context import RequestContext
from addons.telemetry import metrics
from kube.concurrency.pulse import Pulse
from kube.errors import StatusError, bad_request, forbidden, not_acceptable, unavailable
from kube.http.client import Client, Unreachable
from kube.requests.request_info import ResourceType
from kube.wire.codec import codec_for
from kube.wire.codec_base import write_version
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding

LEASES = ResourceType("coordination.k8s.io", "v1", "leases")
FRESH = 40.0
"""Seconds that kubelet counts as alive after its last renewal, where its lease names no duration."""
RENEWALS = 4
"""Renewals in the cloud within that time, as kubelet's own."""
RETRY_INTERVAL = 2.0
"""Seconds until a failed renewal is tried again."""
TIMEOUT = 10.0
"""Seconds a renewal may take: the next one is due then."""
MERGE_PATCH = "application/merge-patch+json"

logger = logging.getLogger(__name__)


class NodeLease:
    """What the origin does with requests for the lease of this node, and the task that renews it."""

    def __init__(
        self,
        node: str,
        client: Client,
        answers: CachedResponses,
        is_up: Callable[[], bool],
        changed: Pulse,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`changed` beats when the cloud comes or goes."""
        self._node = node
        self._path = LEASES.path(LEASE_NAMESPACE, node)
        self._client = client
        self._answers = answers
        self._is_up = is_up
        self._changed = changed
        self._clock = clock
        self._held: Encoded | None = None
        self._heard: float | None = None
        self._hearing = Pulse()
        self._pushed = b""
        """The identity of the lease that the cloud has."""
        self._stamped: tuple[datetime.datetime, float] | None = None

    def describe(self) -> dict[str, Any]:
        """For people."""
        heard = None if self._heard is None else round(self._clock() - self._heard, 1)
        return {"node": self._node, "secondsSinceKubelet": heard, "renewing": self._is_alive()}

    async def answer(self, context: RequestContext, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to a GET, POST or PUT of the lease; StatusError as kube-apiserver."""
        body = await request.content.read()
        asked = OfflineRequest.of(context.info, request.raw_path, request.headers, body)
        match context.info.verb:
            case "get":
                return await self._get(asked)
            case "create":
                return await self._create(asked)
            case _:
                return await self._update(asked)

    async def run(self) -> None:
        """Renew the cloud's lease for good, as long as kubelet renews its own."""
        while True:
            if not self._is_alive():
                await self._hearing.wait()
            elif not self._is_up():
                await self._changed.wait()
            else:
                done = await self._renew()
                metrics.LEASE_RENEWALS.labels("ok" if done else "failed").inc()
                await asyncio.sleep(self._fresh / RENEWALS if done else RETRY_INTERVAL)

    async def _get(self, asked: OfflineRequest) -> web.Response:
        encodings = asked.encodings()
        if not encodings:
            raise not_acceptable("a lease comes as JSON or protobuf, whole")
        held = self._held
        if held is None or held.codec.encoding not in encodings:
            held = await self._learn(asked)
        return response(held, 200)

    async def _create(self, asked: OfflineRequest) -> web.Response:
        codec, obj = asked.named("Lease")
        if obj.name != self._node:
            raise forbidden(f"a node creates only its own lease, not {obj.name}")
        made = Encoded.of(codec, obj)
        if self._is_up():
            try:
                made = await self._ask("POST", LEASES.path(LEASE_NAMESPACE), asked, made.body())
                self._pushed = _identity(made)
            except Unreachable as error:
                logger.info("the lease is created later: %s", error)
                asked.check_taken(codec)
        elif self._held is None:
            asked.check_taken(codec)
        else:
            raise StatusError(
                409, "AlreadyExists", f'leases.coordination.k8s.io "{self._node}" already exists'
            )
        self._hear(made)
        return response(made, 201)

    async def _update(self, asked: OfflineRequest) -> web.Response:
        codec, obj = asked.decoded("Lease")
        if obj.name != self._node:
            raise bad_request("the name of the object does not match the name on the URL")
        asked.check_taken(codec)
        held = Encoded.of(codec, obj)
        self._hear(held)
        return response(held, 200)

    def _hear(self, held: Encoded) -> None:
        """Kubelet is alive."""
        is_new = (
            self._held is None
            or self._held.codec is not held.codec
            or _identity(self._held) != _identity(held)
        )
        self._held, self._heard = held, self._clock()
        if is_new:
            self._answers.keep(
                self._copy_name(held.codec.encoding), {"content-type": held.codec.content_type}, held.body()
            )
        self._hearing.notify()

    async def _learn(self, asked: OfflineRequest) -> Encoded:
        """The cloud's lease, or without a cloud the one that was kept. StatusError where there is none."""
        if self._is_up():
            try:
                held = await self._ask("GET", self._path, asked, None)
            except Unreachable as error:
                logger.info("the lease cannot be read: %s", error)
            else:
                self._held = self._held or held
                return held
        for encoding in asked.encodings():
            kept = await self._answers.get(self._copy_name(encoding))
            if kept is not None:
                with contextlib.suppress(ValueError):
                    return _checked(kept.single())
        raise unavailable("the cloud cannot be reached, and the node has not seen its lease")

    async def _ask(self, method: str, path: str, asked: OfflineRequest, body: bytes | None) -> Encoded:
        # A Table that somebody asked for besides must not become the lease that kubelet gets.
        accept, content_type = ",".join(asked.encodings()), asked.content_type or Encoding.JSON
        answer = await self._client.request(
            method, path, body=body, accept=accept, content_type=content_type, timeout=TIMEOUT
        )
        try:
            codec = codec_for(Encoding(answer.content_type))
            return _checked(Encoded.read(codec, answer.body))
        except ValueError as error:
            raise Unreachable(f"{method} {path}: the answer cannot be read: {error}") from error

    async def _renew(self) -> bool:
        assert self._held is not None
        try:
            if _identity(self._held) != self._pushed:
                await self._push(self._held)
            # After a push too: its time is kubelet's, and may be earlier than what the cloud has seen.
            await self._touch(self._held)
        except StatusError as error:
            if error.code == 404:
                self._pushed = b""
            logger.info("the lease is not renewed: %s", error)
            return False
        except (Unreachable, ValueError) as error:
            logger.info("the lease is not renewed: %s", error)
            return False
        except Exception:
            # Without renewals the cloud would take a living node for dead.
            logger.exception("the lease is not renewed")
            return False
        return True

    async def _push(self, held: Encoded) -> None:
        """Bring the whole lease to the cloud: the first one, and one whose metadata kubelet has changed."""
        content_type = held.codec.content_type
        try:
            answer = await self._client.request("GET", self._path, timeout=TIMEOUT)
        except StatusError as error:
            if error.code != 404:
                raise
            path, method, body = LEASES.path(LEASE_NAMESPACE), "POST", _written_over(held, 0)
        else:
            codec = codec_for(Encoding.JSON)
            version = codec.peek(codec.decode_single(answer.body)[2]).version
            path, method, body = self._path, "PUT", _written_over(held, version)
            self._note_time(answer.body)
        await self._client.request(method, path, body=body, content_type=content_type, timeout=TIMEOUT)
        self._pushed = _identity(held)

    async def _touch(self, held: Encoded) -> None:
        spec = held.decode().fields.child("spec")
        renewal = {
            "holderIdentity": spec.text("holderIdentity"),
            "leaseDurationSeconds": spec.number("leaseDurationSeconds") or int(FRESH),
            "renewTime": self._stamp().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        body = orjson.dumps({"spec": renewal})
        await self._client.request("PATCH", self._path, body=body, content_type=MERGE_PATCH, timeout=TIMEOUT)

    def _note_time(self, lease: bytes) -> None:
        """What the cloud saw last, maybe from an earlier process, whose clock was another: it counts nothing older."""
        stamp = orjson.loads(lease).get("spec", {}).get("renewTime")
        if stamp is not None and self._stamped is None:
            self._stamped = (datetime.datetime.fromisoformat(stamp), self._clock())

    def _stamp(self) -> datetime.datetime:
        """Now, but never earlier than the last time: a clock that is set back must not make the node look dead."""
        wall, clock = datetime.datetime.now(datetime.UTC), self._clock()
        if self._stamped is not None:
            stamped, at = self._stamped
            wall = max(wall, stamped + datetime.timedelta(seconds=clock - at))
        self._stamped = (wall, clock)
        return wall

    def _is_alive(self) -> bool:
        return self._heard is not None and self._clock() - self._heard < self._fresh

    @property
    def _fresh(self) -> float:
        """Seconds that kubelet's last renewal counts."""
        assert self._held is not None
        return self._held.decode().fields.child("spec").number("leaseDurationSeconds") or FRESH

    def _copy_name(self, encoding: Encoding) -> str:
        return answer_name("", self._path, f"the lease as {encoding}", "")


def _checked(lease: Encoded) -> Encoded:
    """ValueError for what is no lease."""
    if lease.kind != "Lease":
        raise ValueError(f"it is a {lease.kind or 'nothing'}, not a Lease")
    lease.decode()
    return lease


def _identity(lease: Encoded) -> bytes:
    """What of it a renewal does not change."""
    return lease.codec.metadata_only(lease.codec.with_version(lease.raw, 0))


def _written_over(lease: Encoded, version: int) -> bytes:
    """The body that puts it in the place of whatever the cloud has at `version` (0: nothing)."""
    obj = lease.decode()
    metadata = obj.fields.child("metadata")
    metadata.clear("uid")
    metadata.set("resourceVersion", write_version(version))
    return Encoded.of(lease.codec, obj).body()
