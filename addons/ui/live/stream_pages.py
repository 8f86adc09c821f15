"""The pages without an end: `/debug/observe`, a line of JSON for each request and event, and `/debug/flows` for
`edgehub attach`, with what that decides about held flows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

import orjson
from aiohttp import web
from mitmproxy.io import tnetstring

from addons.telemetry.observation import VERDICTS, Follower, Observation, WantedLines
from addons.ui.attached.attachments import Attachments
from addons.ui.explain import COMMON_RESOURCES, nearest, plural_of
from addons.ui.handlers import HUB, RequestLimit, for_operator, stream
from addons.ui.running_hub import RunningHub
from kube.concurrency.notifier import comes_within
from kube.errors import bad_request, entity_too_large

if TYPE_CHECKING:
    from addons.ui.attached.flow_feed import FlowFeed
    from addons.ui.flows.flows import Flows

MAX_FOLLOWERS = 8
"""People who follow at once."""
ALIVE = 2.0
"""Seconds after which an empty line is sent where nothing happens: to write it fails once the reader is gone."""


FOLLOWERS = web.AppKey("followers", RequestLimit)


def followers() -> RequestLimit:
    return RequestLimit(MAX_FOLLOWERS, "follower", "too many people follow this hub")


routes = web.RouteTableDef()


@routes.get("/debug/observe")
@for_operator
async def _observe(request: web.Request) -> web.StreamResponse:
    try:
        wanted = wanted_of(request.query, time.time())
    except ValueError as error:
        raise bad_request(str(error)) from None
    follows, has_past = bool(request.query.get("follow")), bool(request.query.get("since"))
    with request.app[FOLLOWERS].take() if follows else nullcontext():
        lines = _stream(request.app[HUB], wanted, follows=follows, has_past=has_past or not follows)
        return await stream(request, lines, {"Content-Type": "application/x-ndjson"})


async def _stream(
    hub: RunningHub, wanted: WantedLines, *, follows: bool, has_past: bool
) -> AsyncGenerator[bytes, None]:
    follower, seen = Follower(wanted), hub.observations
    if follows:
        seen.listen(follower.summary)
    try:
        # Taken at once: what comes while it is written goes to the follower.
        past = list(seen.past(wanted)) if has_past else []
        yield _hints(hub, wanted) + _lines(past)
        while follows:
            try:
                async with asyncio.timeout(ALIVE):
                    lines, dropped = await follower.take()
            except TimeoutError:
                yield b"\n"
                continue
            yield (orjson.dumps({"dropped": dropped}) + b"\n" if dropped else b"") + _lines(lines)
    finally:
        if follows:
            seen.forget(follower.summary)


def _hints(hub: RunningHub, wanted: WantedLines) -> bytes:
    """A line for each name that nobody has asked by, or for, with the nearest one."""
    seen = list(hub.observations.past(WantedLines(events=True)))
    components = {observation.component for observation in seen} | hub.rules.rules.components
    resources = {observation.resource.partition(".")[0] for observation in seen} | COMMON_RESOURCES
    hints, resource = [], wanted.resource.partition(".")[0]
    if wanted.component not in {"", *components}:
        hints.append(
            f"the component {wanted.component!r} has asked for nothing{nearest(wanted.component, components)}"
        )
    if resource not in {"", *resources}:
        hints.append(f"nobody has asked for {resource!r}{nearest(resource, resources)}")
    return b"".join(orjson.dumps({"hint": hint}) + b"\n" for hint in hints)


def _lines(seen: Iterable[Observation]) -> bytes:
    return b"".join(orjson.dumps(observation.to_json()) + b"\n" for observation in seen)


def wanted_of(query: Mapping[str, str], now: float) -> WantedLines:
    """Parse the selection of a request for lines; ValueError, in words, where it cannot be read."""
    verdict, since = query.get("verdict", ""), query.get("since", "")
    if verdict and verdict not in VERDICTS:
        raise ValueError(f"verdict is one of {', '.join(VERDICTS)}, not {verdict!r}")
    if not (since or "0").isdecimal() or len(since) > 9:
        raise ValueError(f"since is a number of seconds, not {since!r}")
    return WantedLines(
        **{name: query.get(name, "") for name in ("component", "namespace")},
        resource=plural_of(query.get("resource", "")),
        verdict=verdict,
        events=bool(query.get("events")),
        since=now - int(since) if since else 0.0,
    )


MAX_DECISION = 5 * 1024 * 1024
"""Bytes of an edited message: the longest that is held has 4 MiB."""
ATTACHMENTS = web.AppKey("attachments", Attachments)


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

    lines = {"visible": [*attachments.visible()], "key": attachments.key, "may_hold": attachments.may_hold()}
    yield tnetstring.dumps(lines)
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
    holds.handle_command(said)
    return web.Response(status=204)
