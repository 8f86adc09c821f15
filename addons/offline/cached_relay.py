"""Answers requests while the cloud is away, from its cached answers.

While the cloud is up, such a request is relayed like any other, and `keep_response` caches the answer. `answer` is for
requests without a server, and for those whose server failed under them (see `addons.server.serve`). It sends these on
to the cloud where that may answer yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from functools import partial

from multidict import CIMultiDict

from addons.link.cloud_access import CloudAccess
from addons.link.health import RETRY_REFUSED
from addons.offline.accepted.accepted_writes import is_write
from addons.offline.cached_response import CachedResponse, GrowingLists, is_too_large
from addons.offline.copy_answers import CopyAnswers
from addons.offline.offline_request import OfflineRequest
from addons.offline.offline_tables import OfflineTables
from addons.offline.people.pod_requests import PodRequests
from addons.offline.writes.minimal_status_patches import MinimalStatusPatches
from addons.offline.writes.offline_writes import OfflineWrites
from addons.requests.answers import Answer, ClientRequest, ClientStream, RelayToCloud
from addons.requests.caller import Caller, CredentialSource
from addons.requests.offline_policy import (
    PEOPLE,
    OfflinePolicy,
    is_access_review,
    is_answered_offline,
    is_kubelets,
    is_object_watch,
    is_token_request,
)
from addons.views.reviews import Reviews
from kube.bounds import reached
from kube.errors import StatusError, unavailable
from kube.http.client import RawResponse, Unreachable
from kube.http.transport.request_fields import OF_CONNECTION
from kube.requests.request_info import RequestInfo

TAKEN_AWAY = frozenset({403, 404})
"""Codes by which the cloud invalidates a former answer.

A 401 concerns the credentials: the node's own may have expired, and a user of many tokens loses one of them.
"""
TRIES = 4
"""Times that a read is sent before the hub answers it: another server may be up."""


class CachedRelay:
    """Handles a cached relay on its way to the cloud, and answers it if no server can."""

    def __init__(
        self,
        node: str,
        cloud: CloudAccess,
        tables: OfflineTables,
        reviews: Reviews,
        copies: CopyAnswers,
        writes: OfflineWrites,
        sparing: MinimalStatusPatches,
        pod_requests: PodRequests | None = None,
    ) -> None:
        """Without `pod_requests` people see no logs and enter no containers while the cloud is away."""
        self._node = node
        self._clients, self._cloud = cloud.clients, cloud.servers
        self._reviews = reviews
        self._copies = copies
        self._answers, self._leases, self.accepted = tables.answers, tables.leases, tables.accepted
        self._growing = GrowingLists()
        self._writes = writes
        self._sparing = sparing
        self.pod_requests = pod_requests
        self._tasks: set[asyncio.Task[None]] = set()

    def offline_policy(self, caller: Caller) -> OfflinePolicy:
        return OfflinePolicy(self._node, self._has_cloud(caller), self.pod_requests is not None)

    def goes_to_cloud(self, info: RequestInfo, caller: Caller) -> bool:
        """Whether a request goes to the cloud unchanged: the cloud is up, has every write that the hub accepted for
        it, and the hub has nothing to add to the answer."""
        is_full_object = not self._is_sparing(caller, info)
        return is_full_object and self._has_cloud(caller) and not self._writes.is_pending(info)

    def _is_sparing(self, caller: Caller, info: RequestInfo) -> bool:
        return caller.credential_source is CredentialSource.HUB and self._sparing.takes(info)

    def _has_cloud(self, caller: Caller) -> bool:
        return (
            self._cloud.is_up
            if caller.credential_source is CredentialSource.HUB
            else self._cloud.is_reachable
        )

    async def begin_write(self, info: RequestInfo) -> bool:
        """Note that a write leaves for the cloud; False for a request that writes nothing."""
        if not is_write(info):
            return False
        await self.accepted.begin(info)
        return True

    async def written(self, request: OfflineRequest, answer: RawResponse, *, was_sent: bool = True) -> None:
        """Take the answer to a write, before the client gets it: the cloud's, if the write `was_sent`."""
        info = request.info
        if not is_write(info):
            return
        if not was_sent or request.is_dry_run:
            self.accepted.refused(info)
        elif 200 <= answer.status < 300:
            self._growing.forget(info)
            await self.accepted.accepted(info, answer)
        elif answer.status < 500 and answer.status != 408:
            self.accepted.refused(info)
        else:
            self.lost(request)

    def lost(self, request: OfflineRequest, *, was_sent: bool = True) -> None:
        """Note that a write has no answer: if it `was_sent`, the cloud may have accepted it."""
        info = request.info
        if was_sent and is_write(info) and not request.is_dry_run:
            self._growing.forget(info)
            self.accepted.lost(info)
        else:
            self.accepted.refused(info)

    def keep_response(self, caller: Caller, request: OfflineRequest, answer: RawResponse, since: int) -> None:
        """Store the cloud's answer to a caller, if it can answer a later request.

        `since`: what `AcceptedWrites.count` was when the request came.
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
            component in PEOPLE
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

    async def answer(self, wanted: ClientRequest, stream: ClientStream) -> Answer | None:
        """The hub's own answer, or a StatusError; None after a watch. RelayToCloud if the cloud must answer first."""
        request = OfflineRequest.of(wanted.info, wanted.target, wanted.headers, wanted.body)
        was_sent = wanted.sent > 0
        if await self._may_send(wanted) and self._has_cloud(wanted.caller):
            if not self._is_sparing(wanted.caller, wanted.info):
                await self.begin_write(wanted.info)
                raise RelayToCloud
            was_sent, client = True, self._clients.relaying(wanted.caller)
            with contextlib.suppress(Unreachable):
                answer = await self._sparing.relay(client, request, [*wanted.headers.items()])
                await self.written(request, answer)
                self.keep_response(wanted.caller, request, answer, self.accepted.count)
                wanted.served.source = "cloud"
                return Answer(answer.body, _end_to_end(answer.headers), answer.status)
        wanted.served.source = "copy"
        self.accepted.lay()
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
        try:
            if request.info.method != "GET":
                return await self._writes.answer(wanted.caller, identity, request, was_sent=was_sent)
            if request.info.verb == "watch":
                await self._copies.watch(identity, wanted, stream, may)
                return None
            return await self._copies.answer(identity, wanted, request)
        except StatusError as error:
            if (
                error.code == 503
                and self._cloud.refusal
                and wanted.caller.credential_source is CredentialSource.HUB
            ):
                raise unavailable(f"{error.message} ({self._cloud.refusal})", RETRY_REFUSED) from None
            raise

    async def _may_send(self, wanted: ClientRequest) -> bool:
        """Whether to send the request: a read again, a write once, and none before a pending write of its object."""
        if wanted.info.verb == "watch":
            return False  # people's, which the hub answers itself
        if wanted.info.method == "GET":
            return wanted.sent < TRIES
        return not wanted.sent and await self._writes.flush(wanted.info)

    def _keep(self, identity: str, request: OfflineRequest, answer: RawResponse) -> None:
        key, options = request.key(identity), request.info.options
        is_read = request.info.method == "GET"
        if is_read and answer.status in (200, *TAKEN_AWAY):
            self.accepted.learn(request.info)
        if answer.status in TAKEN_AWAY and (is_read or is_token_request(request.info)):
            self._answers.forget(key.name)
        self._leases.cache_lease(identity, request, answer)
        if answer.status == 201:
            self._writes.cache_created(identity, request, answer.headers, answer.body)
        elif is_read and answer.status == 200 and not options.is_exact:
            # No client asks for a past state during an outage.
            page = CachedResponse.of(answer.headers, answer.body)
            is_page = options.limit > 0 or options.continue_token
            complete = self._growing.add(key, options.continue_token, page) if is_page else page
            if complete is not None:
                self._answers.put(key, complete)

    async def _keep_own(self, caller: Caller, request: OfflineRequest, answer: RawResponse) -> None:
        if answer.status != 401:
            with contextlib.suppress(StatusError):
                identity = await self._reviews.identity(caller)
                self._keep(identity.user, request, answer)
        self._reviews.learn(caller.authorization, request.info, answer.status)


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """The headers of a server's answer without those of its connection, and of its length."""
    left_out = OF_CONNECTION | {b"content-length"}
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower().encode() not in left_out
    )
