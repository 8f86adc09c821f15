"""The pages under `/debug`: each report as JSON, for tools and for `scripts/hub`, and a profile of the process."""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats

from aiohttp import web
from aiohttp.typedefs import Handler

from addons.ui.handlers import HUB, QUEUE, for_operator, json_response
from addons.ui.reports.asked_reports import ask
from addons.ui.reports.hub_reports import REPORTS
from addons.ui.reports.text import explain_text
from kube.errors import bad_request, too_many_requests

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


def _asked(name: str) -> Handler:
    async def page(request: web.Request) -> web.StreamResponse:
        app, body = request.app, await request.read() if request.method == "POST" else None
        report = await ask(app[HUB], app[QUEUE], name, request.query, body)
        if isinstance(report, bytes):
            return web.Response(body=report, content_type="application/gzip")
        if isinstance(report, str):
            is_yaml = bool(request.query.get("resource"))
            return web.Response(text=report, content_type="application/yaml" if is_yaml else "text/plain")
        is_json = request.query.get("format") == "json" or "json" in request.headers.get("Accept", "")
        return (
            json_response(report) if is_json or name != "explain" else web.Response(text=explain_text(report))
        )

    return page


for _name in (*REPORTS, "explain"):
    routes.get(f"/debug/{_name}")(_asked(_name))
routes.get("/debug/dump")(for_operator(_asked("dump")))
routes.get("/debug/support")(for_operator(_asked("support")))
routes.post("/debug/rules/try")(for_operator(_asked("rules/try")))
routes.post("/debug/link")(for_operator(_asked("link")))


@routes.get("/debug/log")
@for_operator
async def _log(request: web.Request) -> web.Response:
    return web.Response(text="".join(f"{line}\n" for line in request.app[HUB].log.lines))


@routes.get("/debug/requests")
@for_operator
async def _requests(request: web.Request) -> web.Response:
    """The hub's own last requests. Targets of another identity name what that identity reads."""
    return json_response([record.describe() for record in request.app[HUB].own_requests.last])


@routes.get("/debug/profile")
@for_operator
async def _profile(request: web.Request) -> web.Response:
    return web.Response(text=await _profiles.take(request.query.get("seconds", str(PROFILE_SECONDS))))


@routes.get("/debug/rules/try")
async def _how_to_try(_request: web.Request) -> web.Response:
    return web.Response(text=HOW_TO_TRY)
