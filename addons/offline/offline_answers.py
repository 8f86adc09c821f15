"""Stores the cloud's answers, and answers requests from them while the cloud is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from functools import partial

from addons.offline.accepted.accepted_writes import is_write
from addons.offline.cached_response import CachedResponse, GrowingLists, is_too_large
from addons.offline.copy_answers import CopyAnswers
from addons.offline.offline_request import OfflineRequest
from addons.offline.offline_tables import OfflineTables
from addons.offline.people.pod_requests import PodRequests
from addons.offline.writes.offline_writes import OfflineWrites
from addons.requests.answers import Answer, ClientRequest, ClientStream
from addons.requests.caller import Caller, CredentialSource
from addons.requests.offline_policy import (
    USER_TOOLS,
    is_access_review,
    is_answered_offline,
    is_kubelets,
    is_object_watch,
    is_token_request,
)
from addons.views.reviews import Reviews
from kube.bounds import reached
from kube.errors import StatusError
from kube.http.client import Client, RawResponse
from kube.requests.request_info import RequestInfo
from kube.wire.encoding import Encoding

INVALIDATING_STATUSES = frozenset({403, 404})
"""Status codes by which the cloud invalidates an earlier answer.

A 401 concerns the credentials only: the node's own may have expired, and a user with several tokens may lose one.
"""

ENCODINGS = f"{Encoding.PROTOBUF},{Encoding.JSON}"
READ_TIMEOUT = 2.0
"""Seconds that a client waits for its answer to a write while the hub reads the written object."""


class OfflineAnswers:
    """The node's own answers: copies, journaled writes, Leases of pods, and requests to pods."""

    def __init__(
        self,
        tables: OfflineTables,
        reviews: Reviews,
        copies: CopyAnswers,
        writes: OfflineWrites,
        pod_requests: PodRequests | None = None,
    ) -> None:
        """If `pod_requests` is None, logs and streams of pods are refused while the cloud is away."""
        self._reviews = reviews
        self._copies = copies
        self._answers, self._leases, self.accepted = tables.answers, tables.leases, tables.accepted
        self._growing = GrowingLists()
        self._writes = writes
        self.pod_requests = pod_requests
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin_write(self, info: RequestInfo) -> bool:
        """Record that a write is about to be sent; return False for a request that writes nothing."""
        if not is_write(info):
            return False
        await self.accepted.begin(info)
        return True

    async def written(
        self,
        request: OfflineRequest,
        answer: RawResponse,
        reader: Client | None = None,
        *,
        was_sent: bool = True,
    ) -> None:
        """Apply the answer to a write, before the client gets it: the cloud's, if the write `was_sent`. If that does
        not have the object (a Table, a scale), the `reader` fetches it."""
        info = request.info
        if not is_write(info):
            return
        if not was_sent or request.is_dry_run:
            self.accepted.refused(info)
        elif 200 <= answer.status < 300:
            self._growing.forget(info)
            await self.accepted.accepted(info, answer, partial(_read, reader) if reader is not None else None)
        elif answer.status < 500 and answer.status != 408:
            self.accepted.refused(info)
        else:
            self.lost(request)

    def lost(self, request: OfflineRequest, *, was_sent: bool = True) -> None:
        """Record that a write has no answer: if it `was_sent`, the cloud may have accepted it."""
        info = request.info
        if was_sent and is_write(info) and not request.is_dry_run:
            self._growing.forget(info)
            self.accepted.lost(info)
        else:
            self.accepted.refused(info)

    def keep_response(self, caller: Caller, request: OfflineRequest, answer: RawResponse, since: int) -> None:
        """Store the cloud's answer to a caller, if it can answer a later request.

        `since`: the value of `AcceptedWrites.count` when the request arrived.
        """
        is_read = request.info.method == "GET"
        is_void = not self.accepted.is_current(request.info, since) if is_read else request.is_dry_run
        if is_void:
            return
        if answer.status == 200 and request.info.verb == "list":
            self._copies.relayed(request.info, CachedResponse.of(answer.headers, answer.body))
        if is_too_large(answer.headers):
            reached("kept answer")
            return
        if caller.credential_source is CredentialSource.HUB:
            self._keep("", request, answer)
        else:
            self._begin(self._keep_own(caller, request, answer), "copy of an answer")

    def learn(self, component: str, caller: Caller, info: RequestInfo, status: int) -> None:
        """Record for an outage the rights that the cloud has just confirmed for a person with a token."""
        if is_kubelets(info):
            if self.pod_requests is not None:
                self.pod_requests.learn(caller, info, status)
            return
        is_read = info.method == "GET" and (is_answered_offline(info) or is_object_watch(info))
        if (
            component in USER_TOOLS
            and is_read
            and caller.credential_source is CredentialSource.OWN
            and not caller.impersonates
        ):
            self._reviews.learn(caller.authorization, info, status)
            if status in (200, 403):
                self._begin(self._know(caller), "whose token")

    async def _know(self, caller: Caller) -> None:
        with contextlib.suppress(StatusError):
            await self._reviews.identity(caller)

    def _begin(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def answer(
        self, wanted: ClientRequest, request: OfflineRequest, stream: ClientStream, *, was_sent: bool
    ) -> Answer | None:
        """Return the answer, or raise a StatusError; serve a watch until its end and return None. `was_sent`: the cloud
        may have accepted a write."""
        wanted.served.source = "copy"
        self.accepted.apply_to_copies()
        identity = await self._reviews.identity(wanted.caller)
        check = self._reviews.may_in_namespace
        may = partial(check, identity.authorization, wanted.info) if not identity.is_hub else None
        if may is not None:
            await may()
        lease = self._leases.answer(identity.user, request)
        if lease is not None:
            return lease
        if is_access_review(request.info):
            assert self.pod_requests is not None
            return await self.pod_requests.review(request)
        if request.info.method != "GET":
            return await self._writes.answer(wanted.caller, identity, request, was_sent=was_sent)
        if request.info.verb == "watch":
            await self._copies.watch(identity, wanted, stream, may)
            return None
        return await self._copies.answer(identity, wanted, request)

    def _keep(self, identity: str, request: OfflineRequest, answer: RawResponse) -> None:
        key, options = request.key(identity), request.info.options
        is_read = request.info.method == "GET"
        if is_read and answer.status in (200, *INVALIDATING_STATUSES):
            self.accepted.learn(request.info)
        type_ = request.info.type
        # Each cloud serves these: such a 404 comes from a gateway that misroutes.
        is_misrouted = answer.status == 404 and request.info.verb == "list" and type_ and type_.is_permanent
        is_taken_away = answer.status in INVALIDATING_STATUSES and not is_misrouted
        if is_taken_away and (is_read or is_token_request(request.info)):
            self._answers.forget_forms(key)
        self._leases.cache_lease(identity, request, answer)
        if answer.status == 201:
            self._writes.cache_created(identity, request, answer.headers, answer.body)
        elif is_read and answer.status == 200 and not options.is_exact:
            # No client asks for a past state during an outage.
            if options.limit <= 0 and not options.continue_token:
                self._answers.cache_response(key, answer.headers, answer.body)
                return
            page = CachedResponse.of(answer.headers, answer.body)
            complete = self._growing.add(key, options.continue_token, page)
            if complete is not None:
                self._answers.put(key, complete)

    async def _keep_own(self, caller: Caller, request: OfflineRequest, answer: RawResponse) -> None:
        if answer.status != 401:
            with contextlib.suppress(StatusError):
                identity = await self._reviews.identity(caller)
                self._keep(identity.user, request, answer)
        self._reviews.learn(caller.authorization, request.info, answer.status)


async def _read(reader: Client, path: str) -> CachedResponse:
    found = await reader.request("GET", path, accept=ENCODINGS, timeout=READ_TIMEOUT)
    headers = {"content-type": found.content_type, "content-encoding": found.coding}
    return CachedResponse.of(headers, found.body)
