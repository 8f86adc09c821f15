"""The pages under `/debug`: each report as JSON, for tools and for `scripts/hub`, and a profile of the process."""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
from collections.abc import Mapping

from aiohttp import web
from aiohttp.typedefs import Handler

from addons.link.drills import DrillKind, Drills
from addons.ui.explain import ExplainRequest, explain, explain_resource, unknown_resource
from addons.ui.handlers import HUB, QUEUE, for_operator, json_response
from addons.ui.reports import support
from addons.ui.reports.dump import dump
from addons.ui.reports.hub_reports import REPORTS, Report
from addons.ui.reports.rule_trial import try_text
from kube.errors import StatusError, bad_request, forbidden, too_many_requests

PAGES = (*REPORTS, "explain", "dump", "log", "observe", "requests", "rules/try", "support")
"""The pages of the index. A profile makes the hub slow, and flows have no end, so nothing leads there by itself."""
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


routes = web.RouteTableDef()
_profiles = Profiles()


def _shown(report: Report) -> Handler:
    async def page(request: web.Request) -> web.StreamResponse:
        return json_response(report(request.app[HUB]))

    return page


for _name, _report in REPORTS.items():
    routes.get(f"/debug/{_name}")(_shown(_report))


@routes.get("/debug/explain")
async def _explain(request: web.Request) -> web.Response:
    hub, query = request.app[HUB], request.query
    asked = {name: query[name] for name in ExplainRequest._fields if name in query}
    question = ExplainRequest(**{"component": "", "resource": "", **asked})
    # A resource with its group may be a custom one that nobody here has read yet.
    resource = question.resource
    if resource and "." not in resource and (problem := unknown_resource(hub.sources, resource)):
        raise StatusError(404, "NotFound", problem)
    if question.name:
        told = explain(hub, question)
    else:
        async with request.app[QUEUE].take():
            told = await explain_resource(hub, question)
    is_json = query.get("format") == "json" or "json" in request.headers.get("Accept", "")
    return json_response(told) if is_json else web.Response(text=told.text)


@routes.get("/debug/dump")
@for_operator
async def _dump(request: web.Request) -> web.Response:
    hub, query = request.app[HUB], request.query
    if not query.get("resource"):
        resources = {source.list_watch.type.group_resource for source in hub.sources if not source.user}
        return web.Response(text="".join(f"{name}\n" for name in sorted(resources)))
    async with request.app[QUEUE].take():
        text = await dump(hub, *(query.get(name, "") for name in ("resource", "namespace", "name", "as")))
    return web.Response(text=text, content_type="application/yaml")


@routes.get("/debug/log")
@for_operator
async def _log(request: web.Request) -> web.Response:
    return web.Response(text="".join(f"{line}\n" for line in request.app[HUB].log.lines))


@routes.get("/debug/requests")
@for_operator
async def _requests(request: web.Request) -> web.Response:
    """The hub's own last requests. Targets of another identity name what that identity reads."""
    return json_response([record.describe() for record in request.app[HUB].own_requests.last])


@routes.get("/debug/support")
@for_operator
async def _support(request: web.Request) -> web.Response:
    packed = await asyncio.to_thread(support.archive, support.files(request.app[HUB]))
    return web.Response(body=packed, content_type="application/gzip")


@routes.get("/debug/profile")
@for_operator
async def _profile(request: web.Request) -> web.Response:
    return web.Response(text=await _profiles.take(request.query.get("seconds", str(PROFILE_SECONDS))))


@routes.get("/debug/rules/try")
async def _how_to_try(_request: web.Request) -> web.Response:
    return web.Response(text=HOW_TO_TRY)


@routes.post("/debug/rules/try")
@for_operator
async def _try(request: web.Request) -> web.Response:
    text = await request.read()
    async with request.app[QUEUE].take():
        try:
            return json_response(await try_text(request.app[HUB], text))
        except ValueError as error:
            raise bad_request(str(error)) from None


@routes.post("/debug/link")
@for_operator
async def _link(request: web.Request) -> web.Response:
    drills = request.app[HUB].drills
    if drills is None or not drills.are_allowed:
        raise forbidden("drills are off: start the hub with --allow-drills, or beside an interface")
    try:
        begin(drills, request.query)
    except ValueError as error:
        raise bad_request(str(error)) from None
    return json_response(REPORTS["link"](request.app[HUB]))


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
