"""`edgehub.NAME` in mitmproxy's command line: the same queries as `scripts/hub NAME`, with completion.

The commands query the hub that runs beside the interface, or the one to which the interface is attached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import orjson
from mitmproxy import ctx, exceptions, flow, http, types

from addons.filters.filter import READS
from addons.link.drills import DEFAULT_MINUTES, DrillKind
from addons.requests.request_context import context_of
from addons.telemetry.log import REPORT_LINE
from addons.ui.commands import shell
from addons.ui.commands.asking import NoAnswer, write_new
from addons.ui.flows.annotations import component_of
from addons.ui.handlers import ReportQueue
from addons.ui.reports.asked_reports import ask
from addons.ui.reports.hub_reports import REPORTS
from addons.ui.reports.rule_trial import MAX_TEXT
from addons.ui.reports.text import TEXTS
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError
from kube.log_lines import printable_lines
from kube.requests.request_info import parse_request

SUMMARIES = {**shell.REPORTS, "rules": "The rules in force, and what each does now."}
"""The reports without arguments."""

IN_EVENT_LOG = "see the event log: Options, Display Event Log"
AS_OF_NOW = "as of now, by the objects and rules of now and not of the flow:\n"

REFUSALS = (NoAnswer, StatusError, OSError)

logger = logging.getLogger(__name__)

COMPONENT = types.Choice("edgehub.choices.components")
RESOURCE = types.Choice("edgehub.choices.resources")
VERB = types.Choice("edgehub.choices.verbs")
LINK = types.Choice("edgehub.choices.links")
READ = {"component": COMPONENT, "resource": RESOURCE, "verb": VERB}
COMMANDS: Mapping[str, Mapping[str, types.Choice]] = {
    "explain": READ,
    "explain.all": READ,
    "explain.flow": {},
    "rules.try": {},
    "dump": {"resource": RESOURCE},
    "link": {"link": LINK},
    "support": {},
}
"""The commands with arguments, each with its arguments that mitmproxy completes. In method names `_` replaces the
dot.
"""


class AskedHub(Protocol):
    """The hub that the commands query. Its methods raise NoAnswer or StatusError if it refuses."""

    def report(self, name: str) -> Any:
        """Return a report without arguments, as a JSON value."""

    async def ask(self, name: str, query: Mapping[str, str], body: bytes | None = None) -> Any:
        """Return another report: a JSON value, a text, or a file."""


class HubBeside:
    """The hub of this process, available after `start`."""

    def __init__(self) -> None:
        self._hub: RunningHub | None = None
        self._queue = ReportQueue()

    def start(self, hub: RunningHub) -> None:
        self._hub = hub

    def report(self, name: str) -> Any:
        return _plain(REPORTS[name](self._running))

    async def ask(self, name: str, query: Mapping[str, str], body: bytes | None = None) -> Any:
        return _plain(await ask(self._running, self._queue, name, query, body))

    @property
    def _running(self) -> RunningHub:
        if self._hub is None:
            raise NoAnswer("the hub is starting")
        return self._hub


def _plain(report: Any) -> Any:
    """Convert a report to plain JSON values."""
    return report if isinstance(report, str | bytes) else orjson.loads(orjson.dumps(report))


class ConsoleCommands:
    """The commands. Slow answers are shown later: over the console, or in mitmweb's event log."""

    name = "edgehub-commands"

    def __init__(self, hub: AskedHub) -> None:
        self._hub = hub
        self._tasks: set[asyncio.Task[str]] = set()

    def load(self, _loader: object) -> None:
        for name, summary in SUMMARIES.items():
            ctx.master.commands.add(f"edgehub.{name}", typed(self._command_of(name, summary)))
        for name, choices in COMMANDS.items():
            command = getattr(self, name.replace(".", "_"))
            ctx.master.commands.add(f"edgehub.{name}", typed(command, **choices))
        for name in ("components", "resources", "verbs", "links"):
            ctx.master.commands.add(f"edgehub.choices.{name}", getattr(self, name))

    def done(self) -> None:
        for task in self._tasks:
            task.cancel()

    def components(self) -> Sequence[str]:
        """Components that sent requests, or that a rule names."""
        return self._choices("components")

    def resources(self) -> Sequence[str]:
        """Resources that the hub caches, that filters process, or that components of a node commonly read."""
        return self._choices("resources")

    def verbs(self) -> Sequence[str]:
        """The verbs by which components read."""
        return sorted(READS)

    def links(self) -> Sequence[str]:
        """States of the link to the cloud, with and without a drill."""
        return ["online", *DrillKind]

    def explain(
        self, component: str, resource: str, namespace: str = "", name: str = "", verb: str = "list"
    ) -> str | None:
        """Explain why a component sees an object as it does: the route, the rules, and the filters' decisions."""
        return self._answer(self._explain(component, resource, namespace, name, verb))

    def explain_all(
        self, component: str, resource: str, namespace: str = "", verb: str = "list"
    ) -> str | None:
        """Explain a complete resource: each object that is hidden or changed, with the reasons."""
        return self._answer(self._explain(component, resource, namespace, "", verb))

    def explain_flow(self, flow: flow.Flow) -> str | None:
        """Explain a flow's request: `edgehub.explain.flow @focus`."""
        context = context_of(flow) if isinstance(flow, http.HTTPFlow) else None
        component, info = component_of(flow), context.info if context is not None else None
        if context is not None:
            component = context.component
        elif isinstance(flow, http.HTTPFlow):  # a flow of an attached hub
            try:
                info = parse_request(flow.request.method, flow.request.path)
            except StatusError:
                info = None
        if info is None or info.type is None or info.verb not in READS:
            raise exceptions.CommandError("this flow reads no objects that a hub knows of")
        name = info.name if info.verb == "get" else ""
        asked = component, info.type.group_resource, info.namespace, name, info.verb
        return self._answer(self._explain(*asked, said=AS_OF_NOW))

    def rules_try(self, file: types.Path) -> str | None:
        """Show the effect of an edit of the rules on each component. Nothing is applied."""
        return self._answer(self._try(Path(file)))

    def dump(self, resource: str, component: str = "", namespace: str = "", name: str = "") -> str | None:
        """Show the hub's copy of a resource as YAML, or a component's view of it."""
        query = {"resource": resource, "namespace": namespace, "name": name, "as": component}
        return self._answer(self._hub.ask("dump", query))

    def link(self, link: str, kbps: int = 0, ms: int = 0, minutes: int = DEFAULT_MINUTES) -> str | None:
        """Simulate an outage or a slow link, or end that: offline, online, slow KBPS MS."""
        numbers = {"kbps": kbps, "ms": ms, "minutes": minutes}
        query = {"link": link, **{name: str(number) for name, number in numbers.items() if number}}
        return self._answer(self._text("link", query, b""))

    def support(self, path: types.Path) -> str | None:
        """Write an archive for support: reports, metrics and log, no secrets."""
        return self._answer(self._support(Path(path)))

    def _command_of(self, name: str, summary: str) -> Callable[[], str | None]:
        def command() -> str | None:
            return self._answer(self._text(name, {}))

        command.__doc__ = summary
        return command

    def _choices(self, what: str) -> list[str]:
        try:
            return list(self._hub.report("choices")[what])
        except (NoAnswer, StatusError) as error:
            raise exceptions.CommandError(str(error)) from None

    async def _text(
        self, name: str, query: Mapping[str, str], body: bytes | None = None, said: str = ""
    ) -> str:
        return said + TEXTS[name](await self._hub.ask(name, query, body))

    async def _explain(
        self, component: str, resource: str, namespace: str, name: str, verb: str, said: str = ""
    ) -> str:
        query = {"component": component, "resource": resource, "verb": verb}
        return await self._text("explain", query | {"namespace": namespace, "name": name}, said=said)

    async def _try(self, file: Path) -> str:
        def read() -> bytes:
            with file.open("rb") as opened:
                return opened.read(MAX_TEXT + 1)

        return await self._text("rules/try", {}, await asyncio.to_thread(read))

    async def _support(self, path: Path) -> str:
        return await asyncio.to_thread(write_new, str(path), await self._hub.ask("support", {}))

    def _answer(self, work: Coroutine[Any, Any, str]) -> str | None:
        """Show the text that `work` returns, at once or when it is ready. An immediate refusal becomes a
        CommandError.
        """
        loop = asyncio.get_running_loop()
        task = asyncio.Task(work, loop=loop, name="a command of an interface", eager_start=True)
        if task.done():
            try:
                show(printable_lines(task.result()))
            except REFUSALS as error:
                raise exceptions.CommandError(str(error)) from None
        else:
            self._tasks.add(task)
            task.add_done_callback(self._show)
        return IN_EVENT_LOG if in_browser() else None

    def _show(self, task: asyncio.Task[str]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            try:
                show(printable_lines(task.result()))
            except REFUSALS as error:
                show(str(error))


def typed(command: Callable[..., str | None], **choices: types.Choice) -> Callable[..., str | None]:
    """Annotate a command so that mitmproxy completes and validates its arguments by these choices.

    In a browser it returns where the answer is shown: mitmweb's command bar shows one line only, so the answer goes to
    the event log.
    """
    command.__annotations__.update({**choices, "return": str if in_browser() else None})
    return command


def in_browser() -> bool:
    return ctx.master.addons.get("webauth") is not None


def show(text: str) -> None:
    """Show a text over mitmproxy's console; without a console, in the event log."""
    overlay = getattr(ctx.master, "overlay", None)
    if overlay is None:
        # The browser's event log omits mitmproxy's alerts, and shows one line per entry.
        for number, line in enumerate(text.splitlines()):
            logger.info("%s", line, extra={REPORT_LINE: number})
        return
    from mitmproxy.tools.console.overlay import DataViewerOverlay  # noqa: PLC0415 - the console's own packages

    overlay(DataViewerOverlay(ctx.master, text), valign="top")
