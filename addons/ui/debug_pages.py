"""The pages below `/debug`: each report as JSON, for tools and for `scripts/hub`, and a profile of the process."""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats

from addons.ui.handlers import (
    AdminPage,
    AdminRequest,
    AdminResponse,
    file_answer,
    json_answer,
    text_answer,
)
from addons.ui.reports.asked_reports import ask
from addons.ui.reports.hub_reports import REPORTS
from addons.ui.reports.rule_trial import MAX_TEXT
from addons.ui.reports.text import explain_text
from kube.errors import bad_request, too_many_requests

PAGES = (*REPORTS, "explain", "dump", "log", "observe", "requests", "rules/try", "support")
"""The pages that the index lists. It omits profiles, which slow the hub down, and flows, which never end."""
HOW_TO_TRY = """POST a ConfigMap with rules, or its data, as YAML or JSON: the answer is what it would change.
Nothing is applied.

  curl --data-binary @FILE http://…/debug/rules/try
  edgehub rules try FILE
"""
PROFILE_SECONDS = 10
MAX_PROFILE_SECONDS = 60
"""Maximum seconds of a profile, during which each Python call takes about twice as long."""
MAX_PROFILE_LINES = 60
"""Maximum functions in each of the two tables."""


class Profiles:
    """Profiles the process. Only one profile runs at a time, because Python has one profiler."""

    def __init__(self) -> None:
        self._is_busy = False

    async def record_profile(self, seconds: str) -> str:
        """Profile the next seconds. Return two tables: by functions' own time, and by cumulative time.

        StatusError 400 for an invalid number of seconds, 429 while another profile runs.
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

    async def page(self, request: AdminRequest) -> AdminResponse:
        return text_answer(await self.record_profile(request.query.get("seconds", str(PROFILE_SECONDS))))


def _tables(profile: cProfile.Profile) -> str:
    text = io.StringIO()
    stats = pstats.Stats(profile, stream=text)
    for order in ("tottime", "cumulative"):
        stats.sort_stats(order).print_stats(MAX_PROFILE_LINES)
    return text.getvalue()


def asked(name: str) -> AdminPage:
    async def page(request: AdminRequest) -> AdminResponse:
        body = await request.read(MAX_TEXT) if request.is_post else None
        report = await ask(request.hub, request.asked.queue, name, request.query, body)
        if isinstance(report, bytes):
            return file_answer(report, "application/gzip")
        if isinstance(report, str):
            return text_answer(report, "application/yaml" if request.query.get("resource") else "text/plain")
        is_json = request.query.get("format") == "json" or request.accepts("json")
        return json_answer(report) if is_json or name != "explain" else text_answer(explain_text(report))

    return page


async def log(request: AdminRequest) -> AdminResponse:
    return text_answer("".join(f"{line}\n" for line in request.hub.records.log.lines))


async def requests(request: AdminRequest) -> AdminResponse:
    """Return the hub's last own requests. Those with another identity show what that identity reads."""
    return json_answer([record.describe() for record in request.hub.records.own_requests.last])


async def how_to_try(_request: AdminRequest) -> AdminResponse:
    return text_answer(HOW_TO_TRY)
