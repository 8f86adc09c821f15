"""The page `/debug/observe`: a line of JSON for each request and event, those that were and those that come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping

import orjson
from aiohttp import web

from addons.telemetry import metrics
from addons.telemetry.observation import VERDICTS, Observation
from addons.telemetry.observations import Follower, WantedLines
from addons.ui.operator_check import for_operator
from addons.ui.resource_names import COMMON_RESOURCES, nearest, plural_of
from addons.ui.running_hub import RunningHub
from kube.errors import bad_request, too_many_requests

MAX_FOLLOWERS = 8
"""People who follow at once."""
ALIVE = 2.0
"""Seconds after which an empty line is sent where nothing happens: to write it fails once the reader is gone."""


class ObservePage:
    """The handler, for the admin server. `close` ends the streams."""

    def __init__(self, hub: RunningHub) -> None:
        self._hub = hub
        self._followers = 0
        self._closed = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/debug/observe", for_operator(self._hub.settings.plain_users, self._observe))]

    def close(self) -> None:
        self._closed.set()

    async def _observe(self, request: web.Request) -> web.StreamResponse:
        try:
            wanted = wanted_of(request.query, time.time())
        except ValueError as error:
            raise bad_request(str(error)) from None
        follows = bool(request.query.get("follow"))
        if follows and self._followers >= MAX_FOLLOWERS:
            metrics.ADMIN_REFUSED.labels("follower").inc()
            raise too_many_requests("too many people follow this hub", retry_after=30)
        response = web.StreamResponse(
            headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"}
        )
        follower, seen = Follower(wanted), self._hub.observations
        self._followers += follows
        try:
            if follows:
                seen.listen(follower.told)
            # Taken at once: what comes while it is written goes to the follower.
            past = list(seen.past(wanted)) if request.query.get("since") or not follows else []
            await response.prepare(request)
            await response.write(self._hints(wanted) + _lines(past))
            while follows and not self._closed.is_set():
                await response.write(await self._next(follower))
            await response.write_eof()
        except ConnectionResetError:
            pass  # the person has left
        finally:
            self._followers -= follows
            if follows:
                seen.forget(follower.told)
        return response

    def _hints(self, wanted: WantedLines) -> bytes:
        """A line for each name that nobody has asked by, or for, with the nearest one."""
        seen = list(self._hub.observations.past(WantedLines(events=True)))
        components = {observation.component for observation in seen} | self._hub.rules.rules.components
        resources = {observation.resource.partition(".")[0] for observation in seen} | COMMON_RESOURCES
        hints, resource = [], wanted.resource.partition(".")[0]
        if wanted.component not in {"", *components}:
            hints.append(
                f"the component {wanted.component!r} has asked for nothing{nearest(wanted.component, components)}"
            )
        if resource not in {"", *resources}:
            hints.append(f"nobody has asked for {resource!r}{nearest(resource, resources)}")
        return b"".join(orjson.dumps({"hint": hint}) + b"\n" for hint in hints)

    async def _next(self, follower: Follower) -> bytes:
        try:
            async with asyncio.timeout(ALIVE):
                lines, dropped = await follower.take()
        except TimeoutError:
            return b"\n"
        said = orjson.dumps({"dropped": dropped}) + b"\n" if dropped else b""
        return said + _lines(lines)


def _lines(seen: Iterable[Observation]) -> bytes:
    return b"".join(orjson.dumps(observation.to_json()) + b"\n" for observation in seen)


def wanted_of(query: Mapping[str, str], now: float) -> WantedLines:
    """What a request for lines selects; ValueError, in words, where it cannot be read."""
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
