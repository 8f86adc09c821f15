"""The endless pages: `/debug/observe`, a JSON line for each request and event, and `/debug/flows` for `edgehub attach`,
with the decisions on intercepted flows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Mapping

import orjson
from mitmproxy.io import tnetstring

from addons.requests.answers import Answer
from addons.telemetry.observation import VERDICTS, Follower, Observation, WantedLines
from addons.ui.attached.attachments import Attachments
from addons.ui.explain import COMMON_RESOURCES, nearest, plural_of
from addons.ui.handlers import NOT_STORED, AdminRequest, AdminResponse, RequestLimit, Streamed
from addons.ui.running_hub import RunningHub
from kube.concurrency.notifier import completes_within
from kube.errors import bad_request

MAX_FOLLOWERS = 8
"""Maximum concurrent followers."""
KEEPALIVE_INTERVAL = 2.0
"""Seconds after which an idle stream sends an empty line, which fails once the reader is gone."""
MAX_DECISION = 5 * 1024 * 1024
"""Maximum bytes of a decision with an edited message: intercepted messages have at most 4 MiB."""


class StreamPages:
    """The pages, with their followers and the attached process."""

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments
        self._followers = RequestLimit(MAX_FOLLOWERS, "follower", "too many people follow this hub")

    async def observe(self, request: AdminRequest) -> AdminResponse:
        try:
            wanted = wanted_of(request.query, time.time())
        except ValueError as error:
            raise bad_request(str(error)) from None
        headers = {"Content-Type": "application/x-ndjson"}
        if request.query.get("follow"):
            has_past = bool(request.query.get("since"))
            return Streamed(self._follow(request.hub, wanted, has_past=has_past), headers)
        return Answer(_hints(request.hub, wanted) + _past(request.hub, wanted), {**NOT_STORED, **headers})

    async def flows(self, _request: AdminRequest) -> AdminResponse:
        return Streamed(self._records(), {"Content-Type": "application/octet-stream"})

    async def decide(self, request: AdminRequest) -> AdminResponse:
        holds = self._attachments.holds_of(request.query.get("key", ""))
        try:
            said = tnetstring.loads(await request.read(MAX_DECISION))
        except (ValueError, TypeError, IndexError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise bad_request("not a record of an attached process")
        holds.handle_command(said)
        return Answer(headers={}, status=204)

    async def _follow(self, hub: RunningHub, wanted: WantedLines, *, has_past: bool) -> AsyncGenerator[bytes]:
        follower, seen = Follower(wanted), hub.records.observations
        with self._followers.slot():
            seen.listen(follower.summary)
            try:
                # Collected at once: later lines go to the follower.
                yield _hints(hub, wanted) + (_past(hub, wanted) if has_past else b"")
                while True:
                    try:
                        async with asyncio.timeout(KEEPALIVE_INTERVAL):
                            lines, dropped = await follower.next_lines()
                    except TimeoutError:
                        yield b"\n"
                        continue
                    yield (orjson.dumps({"dropped": dropped}) + b"\n" if dropped else b"") + _lines(lines)
            finally:
                seen.forget(follower.summary)

    async def _records(self) -> AsyncGenerator[bytes]:
        attachments = self._attachments
        feed, flows = attachments.attach()
        from addons.ui.attached.flow_feed import EMPTY_RECORD  # noqa: PLC0415 - loaded by `attach`

        lines = {
            "visible": [*attachments.visible()],
            "key": attachments.key,
            "may_hold": attachments.may_hold(),
        }
        try:
            yield tnetstring.dumps(lines)
            while not feed.is_closed:
                is_news = await completes_within(KEEPALIVE_INTERVAL, feed.wait())
                yield feed.next(flows) if is_news else EMPTY_RECORD
            yield tnetstring.dumps({"ended": "another process is attached now"})
        finally:
            attachments.detach(feed)


def _hints(hub: RunningHub, wanted: WantedLines) -> bytes:
    """Return a line for each selected component or resource without requests, with the nearest known name."""
    seen = list(hub.records.observations.past(WantedLines(events=True)))
    components = {observation.component for observation in seen} | hub.rules.rules.components
    resources = {observation.resource.partition(".")[0] for observation in seen} | COMMON_RESOURCES
    hints, resource = [], wanted.resource.partition(".")[0]
    if wanted.component not in {"", *components}:
        hints.append(
            f"the component {wanted.component!r} has asked for nothing{nearest(wanted.component, components)}"
        )
    if resource not in {"", *resources}:
        hints.append(f"no client has asked for {resource!r}{nearest(resource, resources)}")
    return b"".join(orjson.dumps({"hint": hint}) + b"\n" for hint in hints)


def _past(hub: RunningHub, wanted: WantedLines) -> bytes:
    return _lines(hub.records.observations.past(wanted))


def _lines(seen: Iterable[Observation]) -> bytes:
    return b"".join(orjson.dumps(observation.to_json()) + b"\n" for observation in seen)


def wanted_of(query: Mapping[str, str], now: float) -> WantedLines:
    """Parse the query for lines. ValueError, with a message for the user, if it is invalid."""
    verdict, since = query.get("verdict", ""), query.get("since", "")
    if verdict and verdict not in VERDICTS:
        raise ValueError(f"verdict must be one of {', '.join(VERDICTS)}, not {verdict!r}")
    if not (since or "0").isdecimal() or len(since) > 9:
        raise ValueError(f"since is a number of seconds, not {since!r}")
    return WantedLines(
        **{name: query.get(name, "") for name in ("component", "namespace")},
        resource=plural_of(query.get("resource", "")),
        verdict=verdict,
        events=bool(query.get("events")),
        since=now - int(since) if since else 0.0,
    )
