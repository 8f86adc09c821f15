"""Reports by name, with arguments: the admin port, the page and the interfaces call `ask`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from addons.link.drills import DrillKind, Drills
from addons.ui.explain import ExplainRequest, explain, explain_resource, unknown_resource
from addons.ui.handlers import ReportQueue
from addons.ui.reports import support
from addons.ui.reports.dump import dump
from addons.ui.reports.hub_reports import REPORTS, cached_resources
from addons.ui.reports.rule_trial import try_text
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError, bad_request, forbidden

type Query = Mapping[str, str]


async def ask(hub: RunningHub, queue: ReportQueue, name: str, query: Query, body: bytes | None = None) -> Any:
    """Return a report: a JSON value, a text, or a file. StatusError if the hub refuses.

    With a `body`, even an empty one, the request is an action.
    """
    if body is None and name in REPORTS:
        return REPORTS[name](hub)
    return await QUERY_REPORTS[name](hub, queue, query, body or b"")


async def _explain(hub: RunningHub, queue: ReportQueue, query: Query, _body: bytes) -> dict[str, Any]:
    asked = {name: query[name] for name in ExplainRequest._fields if name in query}
    question = ExplainRequest(**{"component": "", "resource": "", **asked})
    # A resource with a group may be a custom one that no component here has read yet.
    resource = question.resource
    if resource and "." not in resource and (problem := unknown_resource(hub.sources, resource)):
        raise StatusError(404, "NotFound", problem)
    if question.name:
        return asdict(explain(hub, question))
    async with queue.slot():
        return asdict(await explain_resource(hub, question))


async def _dump(hub: RunningHub, queue: ReportQueue, query: Query, _body: bytes) -> str:
    """Return the dump of a resource; without a resource, the names of the cached ones."""
    if not query.get("resource"):
        return "".join(f"{name}\n" for name in cached_resources(hub))
    async with queue.slot():
        return await dump(hub, *(query.get(name, "") for name in ("resource", "namespace", "name", "as")))


async def _try(hub: RunningHub, queue: ReportQueue, _query: Query, body: bytes) -> dict[str, Any]:
    async with queue.slot():
        try:
            return await try_text(hub, body)
        except ValueError as error:
            raise bad_request(str(error)) from None


async def _link(hub: RunningHub, _queue: ReportQueue, query: Query, _body: bytes) -> dict[str, Any]:
    if hub.drills is None or not hub.drills.are_allowed:
        raise forbidden("drills are off: start the hub with --allow-drills, or beside an interface")
    try:
        _begin(hub.drills, query)
    except ValueError as error:
        raise bad_request(str(error)) from None
    return REPORTS["link"](hub)  # type: ignore[no-any-return]  # each report has a shape of its own


async def _support(hub: RunningHub, _queue: ReportQueue, _query: Query, _body: bytes) -> bytes:
    return await asyncio.to_thread(support.archive, support.files(hub))


QUERY_REPORTS: Mapping[str, Callable[[RunningHub, ReportQueue, Query, bytes], Awaitable[Any]]] = {
    "explain": _explain,
    "dump": _dump,
    "rules/try": _try,
    "link": _link,
    "support": _support,
}


def _begin(drills: Drills, query: Query) -> None:
    """Begin the drill in the query, or end the running one. ValueError if the query is invalid."""
    link = query.get("link", "")
    if link != DrillKind.SLOW and (query.get("kbps") or query.get("ms")):
        raise ValueError(
            "only slow takes kbit/s and ms; a number of minutes is --minutes, or the fourth in an interface"
        )
    if link == "online":
        drills.end()
        return
    if link not in [*DrillKind]:
        raise ValueError("the link can be offline, online or slow")
    numbers = {name: query[name] for name in ("minutes", "kbps", "ms") if query.get(name)}
    for name, text in numbers.items():
        if not text.removeprefix("-").isdecimal() or len(text) > 9:
            raise ValueError(f"{name} is a number, not {text!r}")
    drills.begin(DrillKind(link), **{name: int(text) for name, text in numbers.items()})
