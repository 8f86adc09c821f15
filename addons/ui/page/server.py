"""Serves the page, its two files, its stream of events, and trials of rules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from importlib.resources import files

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from addons.telemetry import metrics
from addons.ui.debug_pages import PAGES
from addons.ui.operator_check import comes_from_operator, for_operator
from addons.ui.page.markup import text
from addons.ui.page.questions import explain_form, explained, rules_text, trial_html
from addons.ui.page.sections import sections, title
from addons.ui.page.timeline import Rates, Timeline
from addons.ui.report_queue import ReportQueue
from addons.ui.reports.rule_trial import try_text
from addons.ui.running_hub import RunningHub
from kube.concurrency.pulse import comes_within
from kube.errors import too_many_requests

MAX_LISTENERS = 16
"""Open pages that get updates. A further page loads, and gets none."""
INTERVAL = 2.0
"""Seconds between two looks at what has changed."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
FILES = {"page.css": "text/css", "page.js": "text/javascript"}
PARTS = (
    ("timeline", "The last hours"),
    ("components", "Who asks, in the last hour"),
    ("sources", "Copies of the cloud"),
    ("views", "What components are shown"),
    ("pool", "Pool"),
    ("rules", "Rules in force"),
    ("journal", "Writes that wait"),
    ("log", "Last lines of the log"),
)
"""The sections below the two that a person asks, with their headings, in their order."""


class PageServer:
    """The handlers, for the admin server. `close` ends the streams."""

    def __init__(self, hub: RunningHub, reports: ReportQueue) -> None:
        self._hub = hub
        self._reports = reports
        self._rates = Rates(hub.traffic)
        self._timeline = Timeline(hub)
        self._looking: asyncio.Task[None] | None = None
        self._listeners = 0
        self._closed = asyncio.Event()
        self._rendered: dict[bool, tuple[float, dict[str, str]]] = {}
        self._files = {name: files("addons.ui.page").joinpath(name).read_text() for name in FILES}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", self._page),
            *(web.get(f"/{name}", self._file(name)) for name in FILES),
            web.get("/events", self._events),
            web.post("/try", for_operator(self._hub.settings.plain_users, self._try)),
        ]

    def start(self) -> None:
        self._looking = asyncio.create_task(self._timeline.run(), name="timeline of the page")

    def close(self) -> None:
        self._closed.set()
        if self._looking is not None:
            self._looking.cancel()

    async def _page(self, request: web.Request) -> web.Response:
        shown = self._sections(is_operator=await comes_from_operator(request, self._hub.settings.plain_users))
        answer = ""
        if request.query.get("component") and request.query.get("resource"):
            async with self._reports.take():
                answer = await explained(self._hub, request.query)
        parts = "".join(_section(name, heading, shown[name]) for name, heading in PARTS)
        asking = _explain_section(explain_form(self._hub, request.query), answer)
        trying = _try_section(rules_text(self._hub))
        body = asking + trying + parts
        return web.Response(
            text=DOCUMENT.format(
                title=text(title(self._hub)),
                state=shown["state"],
                chain=shown["chain"],
                body=body,
                pages=_links(
                    ("/healthz", "/readyz", "/metrics", *(f"/debug/{name}" for name in sorted(PAGES)))
                ),
            ),
            content_type="text/html",
            headers=HEADERS,
        )

    def _file(self, name: str) -> Handler:
        async def serve(_request: web.Request) -> web.Response:
            return web.Response(text=self._files[name], content_type=FILES[name], headers=HEADERS)

        return serve

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._listeners >= MAX_LISTENERS:
            metrics.ADMIN_REFUSED.labels("listener").inc()
            raise too_many_requests("too many pages are open", retry_after=30)
        is_operator = await comes_from_operator(request, self._hub.settings.plain_users)
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        self._listeners += 1
        try:
            await response.prepare(request)
            told: dict[str, str] = {}
            while not self._closed.is_set():
                shown = self._sections(is_operator=is_operator) | {"title": title(self._hub)}
                news = {name: made for name, made in shown.items() if told.get(name) != made}
                told = shown
                # A comment where nothing is new: to write it fails once the page is closed.
                await response.write(b"data: " + orjson.dumps(news) + b"\n\n" if news else b":\n\n")
                await comes_within(INTERVAL, self._closed.wait())
        except ConnectionResetError:
            pass  # the person has left the page
        finally:
            self._listeners -= 1
        return response

    async def _try(self, request: web.Request) -> web.Response:
        given = await request.read()
        async with self._reports.take():
            try:
                trial = trial_html(await try_text(self._hub, given))
            except ValueError as error:
                trial = f'<p class="bad">{text(error)}</p>'
        return web.Response(text=trial, content_type="text/html", headers=HEADERS)

    def _sections(self, *, is_operator: bool) -> dict[str, str]:
        """All open pages share the sections, which are made once for all of them."""
        at, shown = self._rendered.get(is_operator, (0.0, {}))
        now = time.monotonic()
        if not shown or now - at >= INTERVAL / 2:
            shown = sections(self._hub, self._rates, self._timeline, is_operator=is_operator)
            self._rendered[is_operator] = (now, shown)
        return shown


def _section(name: str, heading: str, body: str) -> str:
    return (
        f'<section aria-labelledby="h-{name}"><h2 id="h-{name}">{heading}</h2>'
        f'<div id="{name}">{body}</div></section>'
    )


def _links(paths: Iterable[str]) -> str:
    return " ".join(f'<a href="{text(path)}">{text(path)}</a>' for path in paths)


def _explain_section(form: str, answer: str) -> str:
    return (
        '<section aria-labelledby="h-explain"><h2 id="h-explain">Why does a component see this so?</h2>'
        f'<form id="ask" method="get" action="/#h-explain">{form}<button>Explain</button></form>'
        f'<div id="explained">{answer}</div></section>'
    )


def _try_section(rules: str) -> str:
    return (
        '<section aria-labelledby="h-try"><h2 id="h-try">What would this edit change?</h2>'
        "<p>Edit the data of the ConfigMap: the hub tries the rules on its own copies as you type, "
        "and applies nothing.</p>"
        '<textarea id="edit" rows="8" spellcheck="false" aria-labelledby="h-try">'
        f"{text(rules) if rules else ''}</textarea>"
        '<div id="trial" aria-live="polite"></div><noscript><p>Trying needs JavaScript; '
        "<code>scripts/hub rules try</code> does not.</p></noscript></section>"
    )


DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/page.css">
<script src="/page.js" defer></script>
</head>
<body>
<header><h1>Edgehub</h1><div id="state">{state}</div><p id="announced" role="status"></p></header>
<nav><a href="#h-explain">Explain</a> <a href="#h-try">Try</a> <a href="#h-timeline">Hours</a>
<a href="#h-components">Who asks</a> <a href="#h-sources">Copies</a> <a href="#h-views">Shown</a>
<a href="#h-pool">Pool</a>
<a href="#h-rules">Rules</a> <a href="#h-journal">Journal</a> <a href="#h-log">Log</a></nav>
<main><div id="chain">{chain}</div>{body}</main>
<footer><p>Red: refused, failed, broken. Amber: served from copies, or to be looked at. All else is as meant.</p>
<p>All pages: {pages}</p></footer>
</body>
</html>
"""
