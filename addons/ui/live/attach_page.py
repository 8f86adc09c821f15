"""The page `/debug/flows`: the flows of a running hub, for `edgehub attach`, and what that decides about held ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from aiohttp import web
from mitmproxy.io import tnetstring

from addons.ui.attached.attachments import Attachments
from addons.ui.handlers import for_operator, stream
from addons.ui.live.observe_page import ALIVE
from kube.concurrency.pulse import comes_within
from kube.errors import bad_request, entity_too_large

if TYPE_CHECKING:
    from addons.ui.attached.flow_feed import FlowFeed
    from addons.ui.flows.flows import Flows

MAX_DECISION = 5 * 1024 * 1024
"""Bytes of an edited message: the longest that is held has 4 MiB."""
ATTACHMENTS = web.AppKey("attachments", Attachments)

routes = web.RouteTableDef()


@routes.get("/debug/flows")
@for_operator
async def _flows(request: web.Request) -> web.StreamResponse:
    attachments = request.app[ATTACHMENTS]
    feed, flows = attachments.attach()
    try:
        records = _records(attachments, feed, flows)
        return await stream(request, records, {"Content-Type": "application/octet-stream"})
    finally:
        attachments.detach(feed)


async def _records(attachments: Attachments, feed: FlowFeed, flows: Flows) -> AsyncGenerator[bytes, None]:
    from addons.ui.attached.flow_feed import NOTHING  # noqa: PLC0415 - loaded by `attach`

    told = {"visible": [*attachments.visible()], "key": attachments.key, "may_hold": attachments.may_hold()}
    yield tnetstring.dumps(told)
    while not feed.is_closed:
        is_news = await comes_within(ALIVE, feed.wait())
        yield feed.next(flows) if is_news else NOTHING
    yield tnetstring.dumps({"ended": "another process is attached now"})


@routes.post("/debug/flows")
@for_operator
async def _decide(request: web.Request) -> web.Response:
    holds = request.app[ATTACHMENTS].holds_of(request.query.get("key", ""))
    text = b""
    async for piece in request.content.iter_any():
        text += piece
        if len(text) > MAX_DECISION:
            raise entity_too_large(f"limit is {MAX_DECISION}")
    try:
        said = tnetstring.loads(text)
    except (ValueError, TypeError, IndexError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise bad_request("no record of an attached process")
    holds.told(said)
    return web.Response(status=204)
