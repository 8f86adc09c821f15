"""`edgehub.NAME` in mitmproxy's command line: what `scripts/hub NAME` asks, with completion, beside an interface."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from mitmproxy import ctx, exceptions, flow, http, types

from addons.filters.filter import READS
from addons.link.drills import DEFAULT_MINUTES, DrillKind
from addons.requests.request_context import context_of
from addons.telemetry.log import REPORT_LINE
from addons.ui.commands import shell
from addons.ui.commands.asking import new_file
from addons.ui.debug_pages import begin
from addons.ui.explain import COMMON_RESOURCES, ExplainRequest, explain, explain_resource
from addons.ui.handlers import ReportQueue
from addons.ui.reports import support
from addons.ui.reports.dump import dump
from addons.ui.reports.hub_reports import REPORTS, known_components
from addons.ui.reports.rule_trial import MAX_TEXT, try_text
from addons.ui.reports.text import TEXTS, trial_text
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError

SUMMARIES = {**shell.REPORTS, "rules": "The rules in force, and what each does now."}
"""The reports without arguments."""

IN_EVENT_LOG = "see the event log: Options, Display Event Log"
AS_OF_NOW = "as of now, by the objects and rules of now and not of the flow:\n"

logger = logging.getLogger(__name__)

COMPONENT = types.Choice("edgehub.choices.components")
RESOURCE = types.Choice("edgehub.choices.resources")
VERB = types.Choice("edgehub.choices.verbs")
LINK = types.Choice("edgehub.choices.links")
READ = {"component": COMPONENT, "resource": RESOURCE, "verb": VERB}
COMMANDS: Mapping[str, Mapping[str, types.Choice]] = {
    "choices.components": {},
    "choices.resources": {},
    "explain": READ,
    "explain.all": READ,
    "explain.flow": {},
    "rules.try": {},
    "dump": {"resource": RESOURCE},
    "link": {"link": LINK},
    "support": {},
}
"""The commands with arguments, each with those that mitmproxy completes. The method has the name with `_` for a dot."""


class ConsoleCommands:
    """The commands. A command that takes long shows its answer later: over the console, or in the event log of
    mitmweb."""

    name = "edgehub-commands"

    def __init__(self) -> None:
        self._running: RunningHub | None = None
        self._reports = ReportQueue()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, hub: RunningHub) -> None:
        """Answer from now on."""
        self._running = hub

    def load(self, _loader: object) -> None:
        add_commands(self, self._report)

    def done(self) -> None:
        for task in self._tasks:
            task.cancel()

    def components(self) -> Sequence[str]:
        """Components that asked for something, or that a rule names."""
        return known_components(self._hub())

    def resources(self) -> Sequence[str]:
        """Resources that the hub keeps, that filters understand, or that components of a node ask for."""
        resources = {
            source.list_watch.type.group_resource for source in self._hub().sources if not source.user
        }
        understood = {
            resource for filter_ in self._hub().rules.rules.filters for _, resource in filter_.resources
        }
        return sorted(resources | understood | COMMON_RESOURCES)

    def explain(
        self, component: str, resource: str, namespace: str = "", name: str = "", verb: str = "list"
    ) -> str:
        """Why a component sees an object as it does: the route, the rules, and what each filter decided."""
        return told(explain(self._hub(), ExplainRequest(component, resource, namespace, name, verb)).text)

    def explain_all(self, component: str, resource: str, namespace: str = "", verb: str = "list") -> None:
        """The same for a whole resource: each object that is hidden or changed, with the reasons."""
        self._show(self._explain_all(ExplainRequest(component, resource, namespace, verb=verb)))

    def explain_flow(self, flow: flow.Flow) -> None:
        """The same for what a flow asked: `edgehub.explain.flow @focus`."""
        context = context_of(flow) if isinstance(flow, http.HTTPFlow) else None
        if context is None or context.info.type is None or context.info.verb not in READS:
            raise exceptions.CommandError("this flow reads no objects that this hub knows of")
        info = context.info
        assert info.type is not None
        question = ExplainRequest(context.component, info.type.group_resource, info.namespace, verb=info.verb)
        if info.verb == "get":
            show(AS_OF_NOW + explain(self._hub(), question._replace(name=info.name)).text)
        else:
            self._show(self._explain_all(question, AS_OF_NOW))

    def rules_try(self, file: types.Path) -> None:
        """Show the effect of an edit of the rules on each component. Nothing is applied."""
        self._show(self._try(Path(file)))

    def dump(self, resource: str, component: str = "", namespace: str = "", name: str = "") -> None:
        """The copy of a resource as YAML, or what a component sees of it."""
        self._show(dump(self._hub(), resource, namespace, name, component))

    def link(self, link: str, kbps: int = 0, ms: int = 0, minutes: int = DEFAULT_MINUTES) -> str:
        """Rehearse an outage or a slow link, and end it: offline, online, slow KBPS MS."""
        hub = self._hub()
        if hub.drills is None:
            raise exceptions.CommandError("this hub has no link to the cloud")
        try:
            begin(hub.drills, {"link": link, "kbps": str(kbps), "ms": str(ms), "minutes": str(minutes)})
        except ValueError as error:
            raise exceptions.CommandError(str(error)) from None
        return told(TEXTS["link"](REPORTS["link"](hub)))

    def support(self, path: types.Path) -> str:
        """Write an archive for who helps: reports, metrics and log, no secrets."""
        packed = support.archive(support.files(self._hub()))
        try:
            with new_file(path) as file:
                file.write(packed)
        except OSError as error:
            raise exceptions.CommandError(f"{path}: {error.strerror}") from None
        return f"{path}: {len(packed)} bytes"

    def _hub(self) -> RunningHub:
        if self._running is None:
            raise exceptions.CommandError("the hub is starting")
        return self._running

    def _report(self, name: str, summary: str) -> Callable[[], str]:
        def report() -> str:
            # As JSON a report has plain values alone, as the texts for the shell get it.
            return told(TEXTS[name](orjson.loads(orjson.dumps(REPORTS[name](self._hub())))))

        report.__doc__ = summary
        return report

    async def _explain_all(self, question: ExplainRequest, said: str = "") -> str:
        return said + (await explain_resource(self._hub(), question)).text

    async def _try(self, file: Path) -> str:
        def read() -> bytes:
            with file.open("rb") as opened:
                return opened.read(MAX_TEXT + 1)

        return trial_text(await try_text(self._hub(), await asyncio.to_thread(read)))

    def _show(self, work: Coroutine[Any, Any, str]) -> None:
        """Show a person the text that `work` returns, once it has returned. One such task runs at a time."""

        async def run() -> None:
            try:
                async with self._reports.take():
                    show(await work)
            except (StatusError, ValueError, OSError) as error:
                show(str(error))
            finally:
                work.close()

        task = asyncio.create_task(run(), name="a command of an interface")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def add_commands(answers: object, report: Callable[[str, str], Callable[[], object]]) -> None:
    """Give an interface all commands: the methods of `answers`, and what `report` makes of each of SUMMARIES."""
    commands: dict[str, Callable[..., object]] = {
        **{name: report(name, summary) for name, summary in SUMMARIES.items()},
        **{
            name: completed(getattr(answers, name.removeprefix("choices.").replace(".", "_")), **choices)
            for name, choices in COMMANDS.items()
        },
        "choices.verbs": verbs,
        "choices.links": links,
    }
    for name, run in commands.items():
        ctx.master.commands.add(f"edgehub.{name}", run)


def verbs() -> Sequence[str]:
    """The verbs by which components read."""
    return sorted(READS)


def links() -> Sequence[str]:
    """The states of the link to the cloud, in a drill and without one."""
    return ["online", *DrillKind]


def completed[Method: Callable[..., object]](method: Method, **choices: types.Choice) -> Method:
    """A command whose arguments mitmproxy completes from these choices, and refuses others."""
    method.__annotations__.update(choices)
    return method


def told(text: str) -> str:
    """A command's answer. mitmweb's command bar writes a text as JSON, in one line: its event log has the lines."""
    if ctx.master.addons.get("webauth") is None:
        return text
    show(text)
    return IN_EVENT_LOG


def show(text: str) -> None:
    """Show a text over mitmproxy's console; in its event log where there is no console."""
    overlay = getattr(ctx.master, "overlay", None)
    if overlay is None:
        # The browser's event log leaves out what mitmproxy alerts of, and has rows of one line.
        for number, line in enumerate(text.splitlines()):
            logger.info("%s", line, extra={REPORT_LINE: number})
        return
    from mitmproxy.tools.console.overlay import DataViewerOverlay  # noqa: PLC0415 - the console's own packages

    overlay(DataViewerOverlay(ctx.master, text), valign="top")
