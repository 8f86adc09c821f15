"""The parts of the page that change by themselves, each as HTML made of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from addons.telemetry.labels import HUB
from addons.ui.page.markup import NOTHING, lines, table, text
from addons.ui.page.timeline import Rates, Timeline
from addons.ui.reports.support import REPORTS
from addons.ui.reports.text import (
    COMPONENTS,
    ENTRIES,
    SOURCES,
    VIEWS,
    Column,
    Row,
    link,
    named,
    of_field,
    plain,
    plural,
)
from addons.ui.running_hub import RunningHub
from kube.tables.cells import size

LOG_LINES = 30
NO_LOG = '<p class="none">The log is shown on the node itself, at a loopback address.</p>'
LEADERS: Sequence[Column] = (
    *named("node"),
    ("at", of_field("server")),
    ("state", lambda row: "usable" if row["usable"] else row["failure"] or "not tried yet"),
    ("serves this hub", of_field("sources")),
)
READERS: Sequence[Column] = (
    *named("resource"),
    ("from", of_field("server")),
    *named("since"),
    ("because", of_field("why")),
)
FOLLOWERS: Sequence[Column] = (*named("node"), ("watching", of_field("watches")))


def sections(hub: RunningHub, rates: Rates, timeline: Timeline, *, is_operator: bool) -> dict[str, str]:
    """HTML by the id of the element that holds it. The log is for the operator of the node."""

    def of(name: str) -> Any:
        return REPORTS[name](hub)

    report = of("status")
    return {
        "state": _state(report),
        "timeline": timeline.html(),
        "chain": _chain(hub, report, rates),
        "components": table(
            of("components"), COMPONENTS, lambda row: "bad" if row["errors"] * 2 > row["requests"] else ""
        ),
        "sources": table(of("sources"), SOURCES, lambda row: "bad" if row["error"] else ""),
        "views": table(of("views"), VIEWS),
        "rules": _rules(of("rules")),
        "journal": _journal(of("journal")),
        "log": lines(list(hub.log.lines)[-LOG_LINES:]) if is_operator else NO_LOG,
        "pool": _pool(report, of("pool")),
    }


def title(hub: RunningHub) -> str:
    """The title of the browser's tab."""
    return f"{link(REPORTS['status'](hub))} · {hub.settings.node}"


def _state(report: Row) -> str:
    up = report["cloud"]["up"]
    problems = report["rules"]["problems"]
    notes = [
        *(
            f"{server['server']}: {plain(server['reason'])}"
            for server in report["cloud"]["servers"]
            if not up
        ),
        *((f"rules are not known: {report['rules']['whyUnknown']}",) if not report["rules"]["known"] else ()),
        *(
            (f"the former filters stay in force: {report['rules']['filterModules']}",)
            if report["rules"]["filterModules"]
            else ()
        ),
        *((f"entries of the rules that are skipped: {problems}",) if problems else ()),
        *(f"not open: {closed_listener}" for closed_listener in report["closedListeners"]),
    ]
    told = "".join(f"<li>{text(note)}</li>" for note in notes)
    facts = f"node {report['node']} · pool {report['pool'] or NOTHING} · edgehub {report['version']}"
    drill = report["drill"]
    alarm = (
        f'<p class="drill">Drill: {text(drill["text"])}. It ends by itself.</p>'
        if drill["link"] != "online"
        else ""
    )
    # Amber: the node is served from its copies. Red: it never had any from this run's cloud.
    colour = "up" if up else "away" if report["cloud"]["reached"] else "bad"
    return f'{alarm}<p class="big {colour}">{text(link(report))}</p><p>{text(facts)}</p>' + (
        f'<ul class="notes">{told}</ul>' if told else ""
    )


def _chain(hub: RunningHub, report: Row, rates: Rates) -> str:
    counts, up = report["bytes"], report["cloud"]["up"]
    to_components, from_cloud, to_cloud = rates.now()
    asking = sum(name != HUB for name in hub.traffic.last_hour())
    share = f"{100 * counts['fromCopies'] / counts['sent']:.0f} %" if counts["sent"] else "nothing yet"
    copies = plural(report["sources"]["all"], "copy", "copies")
    servers = ", ".join(f"{server['server']} {server['condition']}" for server in report["cloud"]["servers"])
    return (
        f'<div class="box"><b>Components</b><span>{asking} in the last hour, {report["watchers"]} watching</span></div>'
        f"{_edge(f'<b>{_rate(to_components)}</b> to components')}"
        f'<div class="box hub"><b>Hub</b><span>{copies}, {plural(report["views"], "view")}</span>'
        f"<span>copies gave {text(share)} of what components got: {text(size(counts['fromCopies']))}</span></div>"
        f"{_edge(f'<b>{_rate(from_cloud)}</b> from the cloud', f'<b>{_rate(to_cloud)}</b> to the cloud', up=up)}"
        f'<div class="box {"" if up else "away"}"><b>Cloud</b><span>{text(servers)}</span>'
        f"<span>today {text(size(counts['linkDownToday']))} down, {text(size(counts['linkUpToday']))} up</span>"
        f"{f'<span>budget: {text(counts["budget"])}</span>' if counts['budget'] else ''}</div>"
    )


def _edge(above: str, below: str = "", *, up: bool = True) -> str:
    """A line between two boxes, with words over and under it."""
    return f'<div class="edge{"" if up else " cut"}"><span>{above}</span><hr><span>{below}</span></div>'


def _rate(rate: float | None) -> str:
    return f"{text(size(rate))}/s" if rate is not None else NOTHING


def _rules(report: Row) -> str:
    skipped = "".join(
        f"<li><code>{text(row['key'])}</code>: <code>{text(row['text'])}</code> is skipped: {text(row['why'])}</li>"
        for row in report["problems"]
    )
    more = f"<li>{report['unnamedProblems']} more entries</li>" if report["unnamedProblems"] else ""
    told = f'<ul class="notes">{skipped}{more}</ul>' if skipped or more else ""
    return told + table(report["entries"], ENTRIES, lambda row: "" if row["matched"] else "idle")


def _journal(report: Row) -> str:
    kinds = plural(len(report["statuses"]), "status", "statuses"), plural(report["events"], "event")
    parts = [f"<p>Writes that wait for the cloud: {report['waiting']} ({', '.join(kinds)}).</p>"]
    if report["statuses"]:
        parts.append(lines(report["statuses"]))
    if report["dropped"]:
        columns = named("kind", "reason", "count")
        parts.append("<p>Dropped since the start:</p>" + table(report["dropped"], columns))
    return "".join(parts)


def _pool(report: Row, shared: Row) -> str:
    """Which pool the node is in; where hubs of the pool read from each other, who leads and what is read from where."""
    if not report["pool"]:
        return "<p>This node is in no pool that the hub knows of.</p>"
    members = f", with {text(shared['members'])}" if shared and shared["members"] else ""
    parts = [f"<p>This node is in pool {text(report['pool'])}{members}.</p>"]
    if shared and shared["shared"]:
        parts.append(f"<p>Its hubs share {text(shared['shared'])}. This hub is: {text(shared['role'])}.</p>")
        parts.append(f"<p>It cannot lead: {text(shared['whyNot'])}.</p>" if shared["whyNot"] else "")
        parts.append("<h3>Leaders</h3>" + table(shared["follows"], LEADERS) if shared["follows"] else "")
        parts.append("<h3>Read from</h3>" + table(shared["sources"], READERS) if shared["sources"] else "")
        followers = [{"node": node, "watches": count} for node, count in shared["followers"].items()]
        parts.append("<h3>Followers</h3>" + table(followers, FOLLOWERS) if followers else "")
    return "".join(parts)
