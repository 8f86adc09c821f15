"""Leader election by a Lease: at most one of several managers writes, and another takes over soon after it ends.

The electors of the kubernetes package (versions 36 and 37) do not release the Lease, so a successor waits for the full
duration after a SIGTERM. They compare wall clocks and set no deadline for a single request, so they may write after the
Lease has expired.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import orjson

from controllers.runtime.unstructured import mapping, metadata, number, text
from controllers.runtime.write_client import parsed_answer
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.json_type import Json
from kube.requests.request_info import ResourceType

LEASES = ResourceType("coordination.k8s.io", "v1", "leases")
LEASE = "edgehub-manager"
"""The name of the managers' Lease."""
USER = "edgehub.io/manager-user"
"""The annotation of the Lease with the leader's user name, because replicas may have different accounts."""

# Seconds, named as in client-go. A successor leads at most 12 s after a crash: the lease duration and two retry periods
# after the last renewal.
LEASE_DURATION = 10.0
"""Other managers take the Lease after this time without a renewal, by their own clocks."""
RENEW_DEADLINE = 7.0
"""The leader stops writing this long after the start of its last successful renewal. It is shorter than the lease
duration, so that the leader never writes beside its successor."""
RENEW_PERIOD = 2.0
RETRY_PERIOD = 1.0
"""Seconds between two readings of the Lease by other managers: after a release one of them leads within this time."""
REQUEST_TIMEOUT = 3.0
"""Timeout of one request: two more attempts fit before the renew deadline."""
RELEASE_ATTEMPTS = 2
INTERNAL_ERROR = 500
"""From this status code on, the server may have accepted the write although it answered an error."""

logger = logging.getLogger(__name__)


class LeaderElector:
    """Acquires and renews the Lease. `remaining` is the gate for writes. All times are this process's monotonic
    clock."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
        user: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        """`user` returns the user name of the client, which is written to the Lease."""
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._user = user
        self._until = float("-inf")
        self._writing: asyncio.Task[None] | None = None
        """The last write of the Lease."""
        self._in_doubt = False
        """Whether the server may have accepted a write whose response was lost."""
        self._lease: Json = {}
        self._seen_version = ""
        self._seen_at = float("-inf")

    def remaining(self) -> float:
        """Return the seconds for which this process may write."""
        return self._until - self._clock()

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Acquire the Lease and run `lead` while holding it, over and over until cancelled; then release the Lease."""
        try:
            while True:
                await self._acquire()
                logger.info("%s leads", self._identity)
                await self._hold(lead)
                logger.warning("%s has lost the Lease", self._identity)
        finally:
            await self._release()

    async def _acquire(self) -> None:
        while True:
            began = self._clock()
            try:
                if await self._try_to_take():
                    self._until = began + RENEW_DEADLINE
                    return
            except (StatusError, Unreachable) as error:
                logger.info("lease %s/%s: %s", self._namespace, self._name, error)
            await asyncio.sleep(RETRY_PERIOD)

    async def _hold(self, lead: Callable[[], Awaitable[None]]) -> None:
        work = asyncio.ensure_future(lead())
        try:
            held = True
            while held:
                await asyncio.wait({work}, timeout=RENEW_PERIOD)
                if work.done():
                    work.result()
                    raise RuntimeError("the leader's work ended although it was not cancelled")
                held = await self._renew_in_time()
        finally:
            # Close the gate first, so that the work starts no write while it is being cancelled.
            self._until = float("-inf")
            work.cancel()
            await asyncio.wait({work})

    async def _renew_in_time(self) -> bool:
        """Renew the Lease, retrying until the renew deadline; False if the Lease is lost."""
        while self.remaining() > 0:
            began = self._clock()
            try:
                await self._put({**self._spec(), "renewTime": _now()}, min(REQUEST_TIMEOUT, self.remaining()))
                self._until = began + RENEW_DEADLINE
                return True
            except StatusError as error:
                logger.warning("lease %s/%s: %s", self._namespace, self._name, error)
                if error.code == 409 and not await self._still_mine():
                    return False
            except Unreachable as error:
                logger.warning("lease %s/%s: %s", self._namespace, self._name, error)
            await asyncio.sleep(min(0.2, max(0.0, self.remaining())))
        return False

    async def _still_mine(self) -> bool:
        try:
            await self._get()
        except (StatusError, Unreachable):
            return True  # unknown: the renew deadline decides
        return text(self._spec().get("holderIdentity")) == self._identity

    async def _try_to_take(self) -> bool:
        try:
            await self._get()
        except StatusError as error:
            if error.code != 404:
                raise
            self._lease = {
                "apiVersion": LEASES.api_version,
                "kind": "Lease",
                "metadata": {"namespace": self._namespace, "name": self._name},
            }
            return await self._take("POST", LEASES.path(self._namespace), 0)
        holder = text(self._spec().get("holderIdentity"))
        version = text(metadata(self._lease).get("resourceVersion"))
        if version != self._seen_version:
            self._seen_version, self._seen_at = version, self._clock()
        duration = number(self._spec().get("leaseDurationSeconds"), int(LEASE_DURATION))
        if holder and holder != self._identity and self._clock() < self._seen_at + duration:
            return False
        transitions = number(self._spec().get("leaseTransitions")) + 1
        return await self._take("PUT", LEASES.path(self._namespace, self._name), transitions)

    async def _take(self, method: str, path: str, transitions: int) -> bool:
        """Write the Lease with this process as its holder; False if another process was faster."""
        taken = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(LEASE_DURATION),
            "acquireTime": _now(),
            "renewTime": _now(),
            "leaseTransitions": transitions,
        }
        meta = metadata(self._lease)
        annotations = {**mapping(meta.get("annotations")), USER: await self._user_name()}
        lease = {**self._lease, "metadata": {**meta, "annotations": annotations}, "spec": taken}
        try:
            await self._send(method, path, lease, REQUEST_TIMEOUT)
        except StatusError as error:
            if error.code != 409:
                raise
            return False
        return True

    async def _user_name(self) -> str:
        """Return the client's user name; "" if the server does not give it."""
        try:
            return await self._user() if self._user is not None else ""
        except (StatusError, Unreachable) as error:
            logger.warning("the API server does not say who the manager is: %s", error)
            return ""

    async def _release(self) -> None:
        """Release the Lease if this process holds it, or may hold it because the response to a write was lost."""
        if self._writing is not None:
            await asyncio.wait({self._writing})
            self._writing.exception()
        for _ in range(RELEASE_ATTEMPTS):
            try:
                if self._in_doubt:
                    await self._get()
                if text(self._spec().get("holderIdentity")) == self._identity:
                    released = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                    await self._put({**self._spec(), **released}, REQUEST_TIMEOUT)
                return
            except (StatusError, Unreachable) as error:
                logger.warning("the lease was not released: %s", error)
                if not isinstance(error, StatusError) or error.code != 409:
                    return
                self._in_doubt = True  # another client changed the Lease, and may be its new holder

    def _spec(self) -> Json:
        return mapping(self._lease.get("spec"))

    async def _get(self) -> None:
        path = LEASES.path(self._namespace, self._name)
        answer = await self._client.request("GET", path, timeout=REQUEST_TIMEOUT)
        self._lease = parsed_answer(answer.body)

    async def _put(self, spec: Json, timeout: float) -> None:
        path = LEASES.path(self._namespace, self._name)
        await self._send("PUT", path, {**self._lease, "spec": spec}, timeout)

    async def _send(self, method: str, path: str, lease: Json, timeout: float) -> None:
        """Write the Lease. A cancellation does not cancel the write: the server may have accepted it already."""
        self._writing = asyncio.ensure_future(self._write(method, path, lease, timeout))
        await asyncio.wait({self._writing})
        self._writing.result()

    async def _write(self, method: str, path: str, lease: Json, timeout: float) -> None:
        self._in_doubt = True
        try:
            answer = await self._client.request(method, path, body=orjson.dumps(lease), timeout=timeout)
        except StatusError as error:
            self._in_doubt = error.code >= INTERNAL_ERROR
            raise
        self._lease = parsed_answer(answer.body)
        self._in_doubt = False


async def user_of_leader(client: Client, namespace: str) -> str:
    """Return the user name with which the leader writes; "" if no Lease names one. Raises what `Client.request`
    raises."""
    try:
        answer = await client.request("GET", LEASES.path(namespace, LEASE), timeout=REQUEST_TIMEOUT)
    except StatusError as error:
        if error.code == 404:
            return ""
        raise
    return text(mapping(metadata(parsed_answer(answer.body)).get("annotations")).get(USER))


def _now() -> str:
    """Format the time as a metav1.MicroTime, for people; no elector compares it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
