"""The pages under `/debug`: each report as JSON, for tools and for `scripts/hub`, and a profile of the process."""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from addons.link.drills import DrillKind, Drills
from addons.ui.explain import ExplainRequest, explain, explain_resource, unknown_resource
from addons.ui.operator_check import for_operator
from addons.ui.report_queue import ReportQueue
from addons.ui.reports import components, copies, journal, rules, status, support
from addons.ui.reports.dump import dump
from addons.ui.reports.rule_trial import try_text
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError, bad_request, forbidden, too_many_requests

type Report = Callable[[RunningHub], Any]

REPORTS: dict[str, Report] = {
    "status": status.status,
    "servers": status.servers,
    "link": status.link,
    "components": components.components,
    "sources": copies.sources,
    "views": copies.views,
    "watchers": copies.watchers,
    "rules": rules.rules,
    "journal": journal.journal,
    "pool": lambda hub: hub.pool.describe() if hub.pool is not None else {},
    "offline": lambda hub: hub.offline.describe() if hub.offline is not None else {},
}
"""The reports that need nothing but the hub."""
PAGES = (*REPORTS, "explain", "dump", "log", "observe", "requests", "rules/try", "support")
"""What the index lists. A profile makes the hub slow, and flows have no end, so nothing leads there by itself."""
HOW_TO_TRY = """POST a ConfigMap with rules, or its data, as YAML or JSON: the answer is what it would change.
Nothing is applied.

  curl --data-binary @FILE http://…/debug/rules/try
  edgehub rules try FILE
"""
PROFILE_SECONDS = 10
MAX_PROFILE_SECONDS = 60
"""Seconds of one profile, during which each call in the process costs about twice its time."""
MAX_PROFILE_LINES = 60
"""Functions in each of the two tables."""


class Profiles:
    """One profile at a time: Python has one profiler."""

    def __init__(self) -> None:
        self._is_busy = False

    async def take(self, seconds: str) -> str:
        """A profile of the next seconds, as two tables: by what functions cost themselves, and with what they call.

        StatusError 400 for what is no number of seconds, 429 while another profile is made.
        """
        if not seconds.isdecimal() or not 1 <= int(seconds) <= MAX_PROFILE_SECONDS:
            raise bad_request(f"seconds is a number from 1 to {MAX_PROFILE_SECONDS}")
        if self._is_busy:
            raise too_many_requests("a profile is being made", retry_after=int(seconds))
        profile = cProfile.Profile()
        self._is_busy = True
        try:
            with profile:
                await asyncio.sleep(int(seconds))
        finally:
            self._is_busy = False
        return await asyncio.to_thread(_tables, profile)


def _tables(profile: cProfile.Profile) -> str:
    text = io.StringIO()
    stats = pstats.Stats(profile, stream=text)
    for order in ("tottime", "cumulative"):
        stats.sort_stats(order).print_stats(MAX_PROFILE_LINES)
    return text.getvalue()


class DebugPages:
    """The handlers, for the admin server."""

    def __init__(self, hub: RunningHub, reports: ReportQueue) -> None:
        self._hub = hub
        self._reports = reports
        self._profiles = Profiles()

    def routes(self) -> list[web.RouteDef]:
        operators = partial(for_operator, self._hub.settings.plain_users)
        return [
            *(web.get(f"/debug/{name}", self._shown(report)) for name, report in REPORTS.items()),
            web.get("/debug/explain", self._explain),
            web.get("/debug/dump", operators(self._dump)),
            web.get("/debug/log", operators(self._log)),
            web.get("/debug/requests", operators(self._requests)),
            web.get("/debug/support", operators(self._support)),
            web.get("/debug/profile", operators(self._profile)),
            web.get("/debug/rules/try", self._how_to_try),
            web.post("/debug/rules/try", operators(self._try)),
            web.post("/debug/link", operators(self._link)),
        ]

    def _shown(self, report: Report) -> Callable[[web.Request], Any]:
        async def page(_request: web.Request) -> web.Response:
            return json_response(report(self._hub))

        return page

    async def _explain(self, request: web.Request) -> web.Response:
        hub = self._hub
        query = request.query
        asked = {name: query[name] for name in ExplainRequest._fields if name in query}
        question = ExplainRequest(**{"component": "", "resource": "", **asked})
        # A resource with its group may be a custom one that nobody here has read yet.
        resource = question.resource
        if resource and "." not in resource and (problem := unknown_resource(hub.sources, resource)):
            raise StatusError(404, "NotFound", problem)
        if question.name:
            told = explain(hub, question)
        else:
            async with self._reports.take():
                told = await explain_resource(hub, question)
        is_json = query.get("format") == "json" or "json" in request.headers.get("Accept", "")
        return json_response(told) if is_json else web.Response(text=told.text)

    async def _dump(self, request: web.Request) -> web.Response:
        query = request.query
        if not query.get("resource"):
            resources = {
                source.list_watch.type.group_resource for source in self._hub.sources if not source.user
            }
            return web.Response(text="".join(f"{name}\n" for name in sorted(resources)))
        async with self._reports.take():
            text = await dump(
                self._hub, *(query.get(name, "") for name in ("resource", "namespace", "name", "as"))
            )
        return web.Response(text=text, content_type="application/yaml")

    async def _log(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(f"{line}\n" for line in self._hub.log.lines))

    async def _requests(self, request: web.Request) -> web.Response:
        """What the hub itself asked last. Targets of another identity name what that identity reads."""
        return json_response([request.describe() for request in self._hub.own_requests.last])

    async def _support(self, request: web.Request) -> web.Response:
        packed = await asyncio.to_thread(support.archive, support.files(self._hub))
        return web.Response(body=packed, content_type="application/gzip")

    async def _profile(self, request: web.Request) -> web.Response:
        seconds = request.query.get("seconds", str(PROFILE_SECONDS))
        return web.Response(text=await self._profiles.take(seconds))

    async def _how_to_try(self, _request: web.Request) -> web.Response:
        return web.Response(text=HOW_TO_TRY)

    async def _try(self, request: web.Request) -> web.Response:
        text = await request.read()
        async with self._reports.take():
            try:
                return json_response(await try_text(self._hub, text))
            except ValueError as error:
                raise bad_request(str(error)) from None

    async def _link(self, request: web.Request) -> web.Response:
        drills = self._hub.drills
        if drills is None or not drills.are_allowed:
            raise forbidden("this hub allows no drills: start it with --allow-drills, or beside an interface")
        try:
            begin(drills, request.query)
        except ValueError as error:
            raise bad_request(str(error)) from None
        return json_response(status.link(self._hub))


def begin(drills: Drills, question: Mapping[str, str]) -> None:
    """Begin the drill that the request names, or end the running one; ValueError where the request names no drill."""
    link = question.get("link", "")
    if link == "online":
        drills.end()
        return
    if link not in [*DrillKind]:
        raise ValueError("the link can be offline, online or slow")
    numbers = {name: question[name] for name in ("minutes", "kbps", "ms") if question.get(name)}
    for name, text in numbers.items():
        if not text.removeprefix("-").isdecimal() or len(text) > 9:
            raise ValueError(f"{name} is a number, not {text!r}")
    drills.begin(DrillKind(link), **{name: int(text) for name, text in numbers.items()})


def json_response(document: Any) -> web.Response:
    return web.Response(
        body=orjson.dumps(document, option=orjson.OPT_INDENT_2), content_type="application/json"
    )
