"""Requests of cached components that go to the cloud as long as there is one, and are answered by the node otherwise.

They are relayed like others, and their answers copied as they pass. The origin has those that have no server to go to,
and those whose server died under them, whose answer mitmproxy itself could not replace (see
`addons.proxy.upstream_failover`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from aiohttp import web

from addons.offline.cached_response import CachedResponse, is_too_large
from addons.offline.cached_responses import CachedResponses
from addons.offline.offline_reads import OfflineReads
from addons.offline.offline_request import OfflineRequest
from addons.offline.writes.offline_writes import OfflineWrites
from addons.requests.caller import Caller, Lending
from addons.requests.client_request import ClientRequest
from addons.requests.clients import Clients
from addons.requests.cloud_identity import CloudIdentity
from addons.requests.headers import ANSWERED_HEADER, LENDING_HEADER, TICKET_HEADER
from addons.requests.offline_policy import OfflinePolicy
from addons.upstream.health import Cloud
from addons.views.responses import HEADERS
from addons.views.reviews import Reviews
from kube.errors import StatusError, unavailable
from kube.http.client import RawResponse, Unreachable
from kube.requests.request_info import RequestInfo

TRIES = 3
"""Times a read is sent before the node answers: another server may be up."""
NOT_PASSED_ON = frozenset(
    {
        "connection",
        "keep-alive",
        "transfer-encoding",
        "content-length",
        "host",
        "upgrade",
        TICKET_HEADER,
        LENDING_HEADER,
        ANSWERED_HEADER,
    }
)


class CachedRelay:
    """What becomes of such a request: on its way to the cloud, and at the origin."""

    def __init__(
        self,
        node: str,
        clients: Clients,
        cloud: Cloud,
        reviews: Reviews,
        objects: OfflineReads,
        answers: CachedResponses,
        writes: OfflineWrites,
    ) -> None:
        self._node = node
        self._clients = clients
        self._cloud = cloud
        self._reviews = reviews
        self._objects = objects
        self._answers = answers
        self._writes = writes
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def offline_policy(self) -> OfflinePolicy:
        return OfflinePolicy(self._node, self._cloud.is_up)

    def is_sent(self, info: RequestInfo) -> bool:
        """Whether a request goes to the cloud: there is one, and it has all that the node took in its place."""
        return self._cloud.is_up and not self._writes.is_pending(info)

    def passed(self, caller: Caller, asked: OfflineRequest, answer: RawResponse) -> None:
        """Copy what the cloud answered to a client."""
        if is_too_large(answer.headers):
            return
        if caller.lending is Lending.HUB:
            self._keep("", asked, answer)
        else:
            task = asyncio.create_task(self._keep_own(caller, asked, answer), name="copy of an answer")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def answer(self, wanted: ClientRequest, request: web.BaseRequest) -> web.StreamResponse:
        """The cloud's answer; without a cloud the node's own, or a StatusError."""
        body = await request.content.read()
        asked = OfflineRequest.of(wanted.info, request.raw_path, request.headers, body)
        for _ in range(await self._tries(wanted)):
            if not self._cloud.is_up:
                break
            answer = await self._ask(wanted.caller, request, asked.body)
            if answer is not None:
                identity = await self._reviews.identity(wanted.caller)
                self._keep(identity.user, asked, answer)
                return web.Response(
                    status=answer.status, headers=_passed_on(answer.headers), body=answer.body
                )
        return await self._from_node(await self._reviews.identity(wanted.caller), wanted, asked)

    async def _tries(self, wanted: ClientRequest) -> int:
        """How often a server is asked: reads may be sent twice, writes not, and not past one that waits."""
        if wanted.info.method == "GET":
            return TRIES
        return 1 if not wanted.was_sent and await self._writes.flush(wanted.info) else 0

    def _keep(self, identity: str, asked: OfflineRequest, answer: RawResponse) -> None:
        options = asked.info.options
        if answer.status == 201:
            self._writes.keep(identity, asked, answer.headers, answer.body)
            return
        if asked.info.method != "GET" or answer.status != 200 or options.continue_token:
            return
        # The first page is the list where it is the last one, too; kubectl always asks for a page.
        if not options.limit or CachedResponse(answer.headers, answer.body).is_whole():
            self._answers.keep(asked.key(identity), answer.headers, answer.body)

    async def _keep_own(self, caller: Caller, asked: OfflineRequest, answer: RawResponse) -> None:
        with contextlib.suppress(StatusError):
            identity = await self._reviews.identity(caller)
            self._keep(identity.user, asked, answer)

    async def _ask(self, caller: Caller, request: web.BaseRequest, body: bytes) -> RawResponse | None:
        """What a server says; None when none said anything."""
        try:
            client = self._clients.relaying(caller)
            answer = await client.relay(
                request.method, request.raw_path, headers=_passed_on(request.headers), body=body
            )
        except Unreachable:
            return None
        return answer if ANSWERED_HEADER in answer.headers else None

    async def _from_node(
        self, identity: CloudIdentity, wanted: ClientRequest, asked: OfflineRequest
    ) -> web.StreamResponse:
        if asked.info.method != "GET":
            return await self._writes.answer(wanted.caller, identity, asked)
        if wanted.route.read is not None:
            response = await self._objects.answer(wanted.route.read, identity)
            if response is not None:
                return response
        kept = await self._answers.get(asked.key(identity.user))
        if kept is not None:
            return web.Response(headers={**kept.headers, **HEADERS}, body=kept.body)
        what = asked.info.type.group_resource if asked.info.type is not None else asked.info.path
        raise unavailable(f"the cloud cannot be reached, and the node has no copy of {what}")


def _passed_on(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name.lower() not in NOT_PASSED_ON]
