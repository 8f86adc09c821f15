"""Serves the page, its two files, its stream of events, and trials of rules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from importlib.resources import files

import orjson

from addons.ui.debug_pages import PAGES
from addons.ui.handlers import (
    NOT_STORED,
    AdminPage,
    AdminRequest,
    AdminResponse,
    RequestLimit,
    Streamed,
    comes_from_operator,
    text_answer,
)
from addons.ui.page.markup import text
from addons.ui.page.sections import explain_form, explained, rules_text, sections, title, tried
from addons.ui.page.timeline import Rates, Timeline
from addons.ui.reports.rule_trial import MAX_TEXT
from addons.ui.running_hub import RunningHub
from kube.concurrency.notifier import completes_within

MAX_LISTENERS = 16
"""Maximum open pages that get updates. Further pages load, but are not updated."""
INTERVAL = 2.0
"""Seconds between updates."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    **NOT_STORED,
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
"""The sections below the two forms, with their headings, in order."""


class LivePage:
    """The page for all open browsers. Its sections are rendered once for all of them."""

    def __init__(self, hub: RunningHub, timeline: Timeline) -> None:
        self.listeners = RequestLimit(MAX_LISTENERS, "listener", "too many pages are open")
        self._hub = hub
        self._timeline = timeline
        self._rates = Rates(hub.records.traffic)
        self._rendered: dict[bool, tuple[float, dict[str, str]]] = {}

    async def document(self, request: AdminRequest) -> AdminResponse:
        hub, query = request.hub, request.query
        shown = self._sections(is_operator=await comes_from_operator(request))
        answer = await explained(hub, request.asked.queue, query)
        paths = ("/healthz", "/readyz", "/metrics", *(f"/debug/{name}" for name in sorted(PAGES)))
        document = DOCUMENT.format(
            title=text(title(hub)),
            state=shown["state"],
            chain=shown["chain"],
            body=_explain_section(explain_form(hub, query), answer)
            + _try_section(rules_text(hub))
            + "".join(_section(name, heading, shown[name]) for name, heading in PARTS),
            pages=" ".join(f'<a href="{text(path)}">{text(path)}</a>' for path in paths),
        )
        return text_answer(document, "text/html", headers=HEADERS)

    async def events(self, request: AdminRequest) -> AdminResponse:
        updates = self._updates(request.asked.closed, is_operator=await comes_from_operator(request))
        return Streamed(updates, {**HEADERS, "Content-Type": "text/event-stream"})

    async def try_rules(self, request: AdminRequest) -> AdminResponse:
        trial = await tried(request.hub, request.asked.queue, await request.read(MAX_TEXT))
        return text_answer(trial, "text/html", headers=HEADERS)

    async def _updates(self, closed: asyncio.Event, *, is_operator: bool) -> AsyncGenerator[bytes]:
        sent: dict[str, str] = {}
        with self.listeners.slot():
            while True:
                shown = self._sections(is_operator=is_operator) | {"title": title(self._hub)}
                news = {name: made for name, made in shown.items() if sent.get(name) != made}
                sent = shown
                # A comment if nothing has changed.
                yield b"data: " + orjson.dumps(news) + b"\n\n" if news else b":\n\n"
                await completes_within(INTERVAL, closed.wait())

    def _sections(self, *, is_operator: bool) -> dict[str, str]:
        at, shown = self._rendered.get(is_operator, (0.0, {}))
        now = time.monotonic()
        if not shown or now - at >= INTERVAL / 2:
            shown = sections(self._hub, self._rates, self._timeline, is_operator=is_operator)
            self._rendered[is_operator] = (now, shown)
        return shown


def page_file(name: str) -> AdminPage:
    content = files("addons.ui.page").joinpath(name).read_text()

    async def page(_request: AdminRequest) -> AdminResponse:
        return text_answer(content, FILES[name], headers=HEADERS)

    return page


def _section(name: str, heading: str, body: str) -> str:
    return (
        f'<section aria-labelledby="h-{name}"><h2 id="h-{name}">{heading}</h2>'
        f'<div id="{name}">{body}</div></section>'
    )


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
