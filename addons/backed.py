"""Requests of cached components that go to the cloud as long as there is one, and are answered by the node otherwise.

They go through the origin, because mitmproxy could not replace the answer of a server that dies under a request.
"""

from __future__ import annotations

from aiohttp import web
from multidict import CIMultiDictProxy

from addons.answers import Answers, answer_name
from addons.caller import Lending
from addons.egress import ANSWERED_HEADER
from addons.exchange import TICKET_HEADER, Exchange
from addons.health import Cloud
from addons.kept_objects import KeptObjects
from addons.reviews import Reviews
from kube.client import Client, Unreachable, WholeAnswer
from kube.status import unavailable

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
        ANSWERED_HEADER,
    }
)


class Backed:
    """What the origin does with such a request."""

    def __init__(
        self,
        client: Client,
        cloud: Cloud,
        reviews: Reviews,
        objects: KeptObjects,
        answers: Answers,
    ) -> None:
        self._client = client
        self._cloud = cloud
        self._reviews = reviews
        self._objects = objects
        self._answers = answers

    @property
    def is_up(self) -> bool:
        return self._cloud.is_up

    async def answer(self, exchange: Exchange, request: web.BaseRequest) -> web.StreamResponse:
        """The cloud's answer; without a cloud the node's own, or a StatusError."""
        body = await request.content.read()
        for _ in range(TRIES):
            if not self._cloud.is_up:
                break
            answer = await self._ask(request, body)
            if answer is not None:
                if answer.status == 200:
                    await self._keep(exchange, request, answer)
                return web.Response(
                    status=answer.status, headers=_passed_on(answer.headers), body=answer.body
                )
        return await self._from_node(exchange, request)

    async def _ask(self, request: web.BaseRequest, body: bytes) -> WholeAnswer | None:
        """What a server says; None when none said anything."""
        try:
            answer = await self._client.whole(
                request.method, request.raw_path, headers=_passed_on(request.headers), body=body
            )
        except Unreachable:
            return None
        return answer if ANSWERED_HEADER in answer.headers else None

    async def _keep(self, exchange: Exchange, request: web.BaseRequest, answer: WholeAnswer) -> None:
        if exchange.info.options.continue_token or exchange.info.options.limit:
            return  # a page is no list
        identity = await self._identity(exchange)
        self._answers.keep(_name(identity, request), answer.headers, answer.body)

    async def _from_node(self, exchange: Exchange, request: web.BaseRequest) -> web.StreamResponse:
        identity = await self._identity(exchange)
        response = await self._objects.answer(exchange, request, identity)
        if response is not None:
            return response
        kept = await self._answers.get(_name(identity, request))
        if kept is not None:
            return web.Response(
                headers={**kept.headers, "Cache-Control": "no-cache, private"}, body=kept.body
            )
        what = exchange.info.type.group_resource if exchange.info.type is not None else exchange.info.path
        raise unavailable(f"the cloud cannot be reached, and the node has no copy of {what}")

    async def _identity(self, exchange: Exchange) -> str:
        if exchange.caller.lending is Lending.HUB:
            return ""
        return await self._reviews.user(exchange.caller.authorization)


def _name(identity: str, request: web.BaseRequest) -> str:
    headers = request.headers
    return answer_name(
        identity, request.raw_path, headers.get("Accept", ""), headers.get("Accept-Encoding", "")
    )


def _passed_on(headers: CIMultiDictProxy[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name.lower() not in NOT_PASSED_ON]
