"""The page's sections as HTML: live ones from reports, and the two forms, `explain` and `rules try`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import yaml

from addons.telemetry.labels import HUB
from addons.ui.explain import hub_source
from addons.ui.handlers import ReportQueue
from addons.ui.page.markup import NO_VALUE, lines, options, table, text
from addons.ui.page.timeline import Rates, Timeline
from addons.ui.reports.asked_reports import ask
from addons.ui.reports.hub_reports import REPORTS, cached_resources
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
    plural,
)
from addons.ui.running_hub import RunningHub
from kube.errors import StatusError
from kube.requests.continue_tokens import key_text
from kube.tables.cells import size

MAX_CHOICES = 500
"""Maximum objects in the select element; others can be named in the address."""
NO_FILTER = "no filter"
TOO_MANY = 429
VERBS = ("watch", "get")
"""Verbs besides `list`, the default."""

NOTES: list[Column] = [*named("filter"), ("about", of_field("subject")), *named("outcome", "reason")]
OBJECTS: list[Column] = [("object", of_field("name")), *named("outcome", "reasons")]
GROUPED_OBJECTS: list[Column] = [("objects", of_field("said")), ("named", of_field("names"))]
NAMED = 5
"""Maximum objects named in a line about objects with the same verdict and reasons."""


def explain_form(hub: RunningHub, query: Mapping[str, str]) -> str:
    """Render the form's select elements. The choice becomes part of the page's address."""
    known = REPORTS["choices"](hub)
    source = hub_source(hub.sources, query.get("resource", "")) if query.get("resource") else None
    items = sorted(key_text(item.key) for item in source.store) if source is not None else []
    choices = (
        ("component", "Component", options(known["components"], query.get("component", ""), "choose")),
        ("resource", "Resource", options(cached_resources(hub), query.get("resource", ""), "choose")),
        ("object", "Object", options(items[:MAX_CHOICES], query.get("object", ""), "all of them")),
        ("verb", "Verb", options(VERBS, query.get("verb", ""), "list")),
    )
    return "".join(
        f'<label>{label} <select name="{name}">{made}</select></label>' for name, label, made in choices
    )


async def explained(hub: RunningHub, queue: ReportQueue, query: Mapping[str, str]) -> str:
    """Render the answer for the form's choice; "" without one."""
    component, resource = query.get("component", ""), query.get("resource", "")
    if not component or not resource:
        return ""
    namespace, _, name = query.get("object", "").rpartition("/")
    chosen = {"component": component, "resource": resource, "verb": query.get("verb", "") or "list"}
    return await _rendered(
        ask(hub, queue, "explain", chosen | {"namespace": namespace, "name": name}), _explanation
    )


async def tried(hub: RunningHub, queue: ReportQueue, edit: bytes) -> str:
    """Render the effect of an edit of the rules."""
    return await _rendered(ask(hub, queue, "rules/try", {}, edit), _trial)


async def _rendered(asking: Awaitable[Row], html: Callable[[Row], str]) -> str:
    """Render a report, or the error instead of it. StatusError 429 if too many reports are requested."""
    try:
        return html(await asking)
    except StatusError as error:
        if error.code == TOO_MANY:
            raise
        return f'<p class="bad">{text(error.message)}</p>'


def _explanation(explanation: Row) -> str:
    if "counts" in explanation:
        answer = table(
            _grouped(explanation["objects"], explanation["path"].rpartition("/")[2]), GROUPED_OBJECTS
        )
        counted = ", ".join(f"{count} {outcome}" for outcome, count in explanation["counts"].items())
    else:
        answer = table(explanation["notes"], NOTES)  # not coloured: a hidden object is no error
        counted = (
            f"the object is {explanation['outcome']}, from {explanation['origin']}"
            if explanation["outcome"]
            else ""
        )
    facts = [f"{explanation['component']} {explanation['verb']} {explanation['path']}"]
    facts += [f"route: {explanation['route']} ({explanation['reason']})"] if explanation["route"] else []
    facts += [*explanation["rules"], counted, explanation["problem"], *explanation["hints"]]
    return "<ul>" + "".join(f"<li>{text(fact)}</li>" for fact in facts if fact) + "</ul>" + answer


def _grouped(objects: Iterable[Row], resource: str) -> list[Row]:
    """Group objects with the same verdict for the same reasons into one row: `17 services hidden: its type is …`."""
    alike: dict[tuple[str, str], list[str]] = {}
    for item in objects:
        name = key_text((item["namespace"], item["name"]))
        # A filter's verdict on the complete object repeats its verdict on a part.
        notes = [note for note in item["reasons"] if note["subject"] != "object"] or item["reasons"]
        because = "; ".join(dict.fromkeys(f"{note['filter']}: {note['reason']}" for note in notes))
        alike.setdefault((item["outcome"], because), []).append(name)
    lines: list[Row] = []
    for (outcome, because), names in alike.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        many = plural(len(names), resource.removesuffix("s"), resource)
        lines.append({"said": f"{many} {outcome}: {because}", "names": ", ".join(names[:NAMED]) + more})
    return lines


def rules_text(hub: RunningHub) -> str:
    """Return the rules in force as the YAML that a user edits."""
    data = hub.rules.data() or {}
    return yaml.safe_dump(data, sort_keys=True, width=10_000) if data else ""


def _trial(trial: Row) -> str:
    lost = trial["lost"]
    head = f"{plural(lost['objects'], 'object')} and {plural(lost['endpoints'], 'endpoint')} would be lost"
    if not trial["changes"]:
        head = "This text is the same as the rules in force."
    parts = [f'<p class="{"warn" if any(lost.values()) else "good"}">{text(head)}</p>']
    skipped = (
        f"{problem['key']}: {problem['text']!r} is skipped: {problem['why']}" for problem in trial["problems"]
    )
    parts.append("".join(f'<p class="bad">{text(line)}</p>' for line in skipped))
    for row in trial["components"]:
        parts.append(_difference(row))
    for resource in trial["unseen"]:
        change = f"{text(resource['before'] or NO_FILTER)} becomes {text(resource['after'] or NO_FILTER)}"
        parts.append(f"<p>{text(resource['component'])} has not asked for what they filter: {change}</p>")
    for kind, consequence in (("gained", "will be kept for an outage"), ("lost", "will no longer be kept")):
        if trial["cached"][kind]:
            parts.append(f"<p>Reads of {text(trial['cached'][kind])} {consequence}.</p>")
    if not trial["complete"]:
        parts.append('<p class="bad">The hub ran out of time: there is more.</p>')
    return "".join(parts)


def _difference(row: Row) -> str:
    title = f"{row['component'] or '(unnamed)'} {'/'.join(row['verbs'])} {row['resource']}"
    filters = f"{', '.join(row['before']) or NO_FILTER} becomes {', '.join(row['after']) or NO_FILTER}"
    ends = row["endpoints"]
    counts = ", ".join(f"{row[kind]['count']} {kind}" for kind in ("gained", "lost", "changed"))
    summary = f"of {row['objects']} objects {counts}; endpoints in them {ends['before']} to {ends['after']}"
    rows = [
        *({"name": name, "outcome": "gained", "reasons": ""} for name in row["gained"]["names"]),
        *(
            {"name": name["name"], "outcome": kind, "reasons": "; ".join(name["reasons"])}
            for kind in ("lost", "changed")
            for name in row[kind]["names"]
        ),
    ]
    marks = {"lost": "warn", "gained": "good"}
    objects_table = table(rows, OBJECTS, lambda row: marks.get(row["outcome"], "")) if rows else ""
    return f"<h3>{text(title)}</h3><p>{text(filters)}: {text(summary)}</p>{objects_table}"


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
    """Render the sections, by the id of their element. Only the operator of the node gets the log."""

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
        "log": lines(list(hub.records.log.lines)[-LOG_LINES:]) if is_operator else NO_LOG,
        "pool": _pool(report, of("pool")),
    }


def title(hub: RunningHub) -> str:
    """Return the title of the browser tab."""
    return f"{link(REPORTS['status'](hub))} · {hub.settings.node}"


def _state(report: Row) -> str:
    up = report["cloud"]["up"]
    problems = report["rules"]["problems"]
    notes = [
        *(f"{server['server']}: {server['reason']}" for server in report["cloud"]["servers"] if not up),
        *((f"not ready: {report['unfit']}",) if report["unfit"] else ()),
        *((f"rules are not known: {report['rules']['whyUnknown']}",) if not report["rules"]["known"] else ()),
        *(
            (f"the previous filters stay in force: {report['rules']['filterModules']}",)
            if report["rules"]["filterModules"]
            else ()
        ),
        *((f"entries of the rules that are skipped: {problems}",) if problems else ()),
    ]
    notes_list = "".join(f"<li>{text(note)}</li>" for note in notes)
    facts = f"node {report['node']} · pool {report['pool'] or NO_VALUE} · edgehub {report['version']}"
    drill = report["drill"]
    alarms = [f"Not open: {closed}." for closed in report["closedListeners"]]
    if drill["link"] != "online":
        alarms.append(f"Drill: {drill['text']}. It ends by itself.")
    alarm = "".join(f'<p class="drill">{text(line)}</p>' for line in alarms)
    # Amber: the node is served from its copies. Red: this process has never reached the cloud.
    colour = "up" if up else "away" if report["cloud"]["reached"] else "bad"
    return f'{alarm}<p class="big {colour}">{text(link(report))}</p><p>{text(facts)}</p>' + (
        f'<ul class="notes">{notes_list}</ul>' if notes_list else ""
    )


def _chain(hub: RunningHub, report: Row, rates: Rates) -> str:
    counts, up = report["bytes"], report["cloud"]["up"]
    to_components, from_cloud, to_cloud = rates.now()
    asking = sum(name != HUB for name in hub.records.traffic.last_hour())
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
    """Render a line between two boxes, with texts above and below it."""
    return f'<div class="edge{"" if up else " cut"}"><span>{above}</span><hr><span>{below}</span></div>'


def _rate(rate: float | None) -> str:
    return f"{text(size(rate))}/s" if rate is not None else NO_VALUE


def _rules(report: Row) -> str:
    skipped = "".join(
        f"<li><code>{text(row['key'])}</code>: <code>{text(row['text'])}</code> is skipped: {text(row['why'])}</li>"
        for row in report["problems"]
    )
    more = f"<li>{report['unnamedProblems']} more entries</li>" if report["unnamedProblems"] else ""
    skipped_list = f'<ul class="notes">{skipped}{more}</ul>' if skipped or more else ""
    return skipped_list + table(report["entries"], ENTRIES, lambda row: "" if row["matched"] else "idle")


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
    """Render the node's pool; if its hubs share resources, also its leaders and each resource's source."""
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
