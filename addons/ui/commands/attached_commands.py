"""`edgehub.NAME` in mitmproxy's command line where it is attached to a hub that runs elsewhere: asks the admin port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mitmproxy import ctx, exceptions, flow, http, types

from addons.filters.filter import READS
from addons.link.drills import DEFAULT_MINUTES
from addons.ui.commands.asking import JSON, NoAnswer, new_file, open_page
from addons.ui.commands.console_commands import add_commands, show
from addons.ui.explain import COMMON_RESOURCES
from addons.ui.flows.annotations import component_of
from addons.ui.reports.text import TEXTS, trial_text
from kube.errors import StatusError
from kube.log_lines import printable_lines
from kube.requests.request_info import parse_request

TEXT = "text/plain"


class AskingCommands:
    """The commands of `addons.ui.commands.console_commands`. Each shows its answer when the hub has given it."""

    name = "edgehub-asking-commands"

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def load(self, _loader: object) -> None:
        add_commands(self, self._report)

    def done(self) -> None:
        for task in self._tasks:
            task.cancel()

    def components(self) -> Sequence[str]:
        """Components that asked for something."""
        return sorted(row["component"] for row in json.loads(_ask("components")) if row["component"])

    def resources(self) -> Sequence[str]:
        """Resources that the hub keeps, or that components of a node ask for."""
        return sorted({*_ask("dump", accept=TEXT).split(), *COMMON_RESOURCES})

    def explain(
        self, component: str, resource: str, namespace: str = "", name: str = "", verb: str = "list"
    ) -> None:
        """Why a component sees an object as it does: the route, the rules, and what each filter decided."""
        query = {
            "component": component,
            "resource": resource,
            "namespace": namespace,
            "name": name,
            "verb": verb,
        }
        self._show(lambda: _ask("explain", query, accept=TEXT))

    def explain_all(self, component: str, resource: str, namespace: str = "", verb: str = "list") -> None:
        """The same for a whole resource: each object that is hidden or changed, with the reasons."""
        self.explain(component, resource, namespace, verb=verb)

    def explain_flow(self, flow: flow.Flow) -> None:
        """The same for what a flow asked: `edgehub.explain.flow @focus`. As of now, and not of the flow."""
        try:
            info = (
                parse_request(flow.request.method, flow.request.path)
                if isinstance(flow, http.HTTPFlow)
                else None
            )
        except StatusError:
            info = None
        if info is None or info.type is None or info.verb not in READS:
            raise exceptions.CommandError("this flow reads no objects that a hub knows of")
        self.explain(component_of(flow), info.type.group_resource, info.namespace, info.name, info.verb)

    def rules_try(self, file: types.Path) -> None:
        """Show the effect of an edit of the rules on each component. Nothing is applied."""
        self._show(lambda: trial_text(json.loads(_ask("rules/try", body=Path(file).read_bytes()))))

    def dump(self, resource: str, component: str = "", namespace: str = "", name: str = "") -> None:
        """The copy of a resource as YAML, or what a component sees of it."""
        query = {"resource": resource, "namespace": namespace, "name": name, "as": component}
        self._show(lambda: _ask("dump", query, accept="*/*"))

    def link(self, link: str, kbps: int = 0, ms: int = 0, minutes: int = DEFAULT_MINUTES) -> None:
        """Rehearse an outage or a slow link, and end it: offline, online, slow KBPS MS."""
        numbers = {"kbps": kbps, "ms": ms, "minutes": minutes}
        query = {"link": link, **{name: str(number) for name, number in numbers.items() if number}}
        self._show(lambda: TEXTS["link"](json.loads(_ask("link", query, body=b""))))

    def support(self, path: types.Path) -> None:
        """Write an archive for who helps: reports, metrics and log, no secrets."""

        def write() -> str:
            with open_page(ctx.options.edgehub_admin, "support", accept="*/*") as answer:
                packed = answer.read()
            with new_file(path) as file:
                file.write(packed)
            return f"{path}: {len(packed)} bytes"

        self._show(write)

    def _report(self, name: str, summary: str) -> Callable[[], None]:
        def report() -> None:
            self._show(lambda: TEXTS[name](json.loads(_ask(name))))

        report.__doc__ = summary
        return report

    def _show(self, work: Callable[[], str]) -> None:
        """Show a person the text that `work` returns, which waits for the hub in a thread."""

        async def run() -> None:
            try:
                text = await asyncio.to_thread(work)
            except (NoAnswer, OSError) as error:
                text = str(error)
            show(printable_lines(text))

        task = asyncio.create_task(run(), name="a command of an interface")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _ask(
    page: str, query: Mapping[str, str] | None = None, *, accept: str = JSON, body: bytes | None = None
) -> str:
    """The hub's answer. NoAnswer as `open_page`."""
    with open_page(ctx.options.edgehub_admin, page, query, accept=accept, body=body) as answer:
        return answer.read().decode()
