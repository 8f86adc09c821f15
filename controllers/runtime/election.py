"""Leader election by a Lease: of several managers at most one writes, and another follows soon when it ends.

Why not the kubernetes package's own (read in versions 36 and 37): neither its thread nor its asyncio elector gives the
Lease back, so that a successor waits out the whole duration after a SIGTERM; both compare wall clocks, try to renew
without a deadline of the single request, and so may write on after the Lease has ended; its Lease lock is only in
37, which does not install beside mitmproxy on Python 3.12.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson

from controllers.runtime.reading import mapping, metadata, number, text
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.requests.request_info import ResourceType

LEASES = ResourceType("coordination.k8s.io", "v1", "leases")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. A successor takes over at most the duration and two polls after the last renewal: 12 s after a crash."""

    duration: float = 10.0
    """How long a Lease is good without a renewal: others wait that long, by their own clock."""
    deadline: float = 7.0
    """How long the holder relies on a renewal, counted from before it was sent: shorter, so that nobody writes at
    the same time as a successor, whatever the network does."""
    renew: float = 2.0
    poll: float = 1.0
    """How often the others look: within this time after a release one of them leads."""
    request: float = 3.0
    """For one request: two more fit before the deadline."""


DEFAULT_TIMING = Timing()


class Elector:
    """`left` is the gate for writes. All times are read from the monotonic clock of this process."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        timing: Timing = DEFAULT_TIMING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._timing = timing
        self._clock = clock
        self._until = float("-inf")
        self._held = False
        self._lease: Json = {}
        self._seen_version = ""
        self._seen_at = float("-inf")

    def left(self) -> float:
        """Seconds for which this process may write."""
        return self._until - self._clock()

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Try to lead, and run `lead` while leading, until cancelled; then give the Lease back."""
        try:
            while True:
                await self._acquire()
                logger.info("%s leads", self._identity)
                await self._hold(lead)
                logger.warning("%s leads no more", self._identity)
        finally:
            await self._release()

    async def _acquire(self) -> None:
        while True:
            began = self._clock()
            try:
                if await self._try_to_take():
                    self._until = began + self._timing.deadline
                    return
            except (StatusError, Unreachable) as error:
                logger.info("lease %s/%s: %s", self._namespace, self._name, error)
            await asyncio.sleep(self._timing.poll)

    async def _hold(self, lead: Callable[[], Awaitable[None]]) -> None:
        work = asyncio.ensure_future(lead())
        self._held = True
        try:
            while self._held:
                await asyncio.wait({work}, timeout=self._timing.renew)
                if work.done():
                    work.result()
                    raise RuntimeError("the work of the leader ended by itself")
                self._held = await self._renew_in_time()
        finally:
            # The gate closes first, so that no write begins while the work ends.
            self._until = float("-inf")
            work.cancel()
            await asyncio.wait({work})

    async def _renew_in_time(self) -> bool:
        """Renew, again and again until the deadline; False when the Lease is lost."""
        while self.left() > 0:
            began = self._clock()
            try:
                await self._put({**self._spec(), "renewTime": _now()}, min(self._timing.request, self.left()))
                self._until = began + self._timing.deadline
                return True
            except StatusError as error:
                logger.warning("lease %s/%s: %s", self._namespace, self._name, error)
                if error.code == 409 and not await self._still_mine():
                    return False
            except Unreachable as error:
                logger.warning("lease %s/%s: %s", self._namespace, self._name, error)
            await asyncio.sleep(min(0.2, max(0.0, self.left())))
        return False

    async def _still_mine(self) -> bool:
        try:
            await self._get()
        except (StatusError, Unreachable):
            return True  # not known: the deadline decides
        return text(self._spec().get("holderIdentity")) == self._identity

    async def _try_to_take(self) -> bool:
        try:
            await self._get()
        except StatusError as error:
            if error.code != 404:
                raise
            return await self._create()
        holder = text(self._spec().get("holderIdentity"))
        version = text(metadata(self._lease).get("resourceVersion"))
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, self._clock()
        duration = number(self._spec().get("leaseDurationSeconds"), int(self._timing.duration))
        if holder and holder != self._identity and self._clock() < self._seen_at + duration:
            return False
        transitions = number(self._spec().get("leaseTransitions")) + 1
        return await self._unless_taken(self._put(self._taken(transitions), self._timing.request))

    async def _create(self) -> bool:
        self._lease = {
            "apiVersion": LEASES.api_version,
            "kind": "Lease",
            "metadata": {"namespace": self._namespace, "name": self._name},
            "spec": self._taken(0),
        }
        return await self._unless_taken(
            self._send("POST", LEASES.path(self._namespace), self._timing.request)
        )

    async def _unless_taken(self, write: Awaitable[None]) -> bool:
        try:
            await write
        except StatusError as error:
            if error.code != 409:
                raise
            return False
        return True

    async def _release(self) -> None:
        if not self._held:
            return
        self._held = False
        spec = {**self._spec(), "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
        try:
            await self._put(spec, self._timing.request)
        except (StatusError, Unreachable) as error:
            logger.warning("the lease was not given back: %s", error)

    def _taken(self, transitions: int) -> Json:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._timing.duration),
            "acquireTime": _now(),
            "renewTime": _now(),
            "leaseTransitions": transitions,
        }

    def _spec(self) -> Json:
        return mapping(self._lease.get("spec"))

    async def _get(self) -> None:
        path = LEASES.path(self._namespace, self._name)
        answer = await self._client.request("GET", path, timeout=self._timing.request)
        self._lease = _parse(answer.body)

    async def _put(self, spec: Json, timeout: float) -> None:
        self._lease = {**self._lease, "spec": spec}
        await self._send("PUT", LEASES.path(self._namespace, self._name), timeout)

    async def _send(self, method: str, path: str, timeout: float) -> None:
        answer = await self._client.request(method, path, body=orjson.dumps(self._lease), timeout=timeout)
        self._lease = _parse(answer.body)


def _now() -> str:
    """As metav1.MicroTime; for people, no elector compares it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _parse(body: bytes) -> Json:
    try:
        return mapping(orjson.loads(body))
    except orjson.JSONDecodeError:
        raise Unreachable("the lease is not JSON") from None
