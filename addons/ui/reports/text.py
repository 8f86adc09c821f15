"""Reports as text for a terminal, for `scripts/hub NAME` and mitmproxy's command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kube.log_lines import printable
from kube.requests.continue_tokens import key_text
from kube.tables.cells import aligned, duration, size

type Row = Mapping[str, Any]
type Column = tuple[str, Callable[[Row], object]]

DRILL, NOT_OPEN = "DRILL: ", "NOT OPEN: "
ALARMS = (DRILL, NOT_OPEN)
"""Beginnings of the lines that a terminal shows in red."""


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun: `1 copy`, `2 copies`."""
    return f"{count} {noun if count == 1 else nouns or f'{noun}s'}"


def waiting(writes: int) -> str:
    return f"{writes} {'write waits' if writes == 1 else 'writes wait'}"


def link(status: Row) -> str:
    """Return `Online for 3m20s`, or `Offline for 4m0s, 12 writes wait for the cloud`, after `DRILL, ` during a
    drill.
    """
    cloud, waits = status["cloud"], status["journal"]
    drill = "DRILL, " if status["drill"]["link"] != "online" else ""
    if not cloud["up"] and not cloud["reached"]:
        return f"{drill}Never reached the cloud for {duration(cloud['seconds'])}, since the start of the hub"
    route = f" by {cloud['uplink']}" if cloud["uplink"] else ""
    route = f" through node {cloud['via']}" if cloud["via"] else route
    phrase = f"{drill}{'Online' + route if cloud['up'] else 'Offline'} for {duration(cloud['seconds'])}"
    return f"{phrase}, {waiting(waits)} for the cloud" if waits or not cloud["up"] else phrase


def table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Format rows as aligned columns; `none` without rows."""
    if not rows:
        return "none\n"
    read = ([printable(_cell(of(row))) for _, of in columns] for row in rows)
    cells = [[name.upper() for name, _ in columns], *read]
    return "\n".join((*aligned(cells), ""))


def _cell(value: object) -> str:
    match value:
        case None | "" | [] | ():
            return "-"
        case list() | tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)


def of_field(name: str) -> Callable[[Row], object]:
    return lambda row: row[name]


def named(*fields: str) -> list[Column]:
    """Return columns that show fields under their own names."""
    return [(field, of_field(field)) for field in fields]


def _size_of(name: str) -> Callable[[Row], object]:
    return lambda row: size(row[name])


def _seconds(name: str) -> Callable[[Row], object]:
    return lambda row: duration(row[name]) if row[name] is not None else "-"


def selectors(row: Row) -> str:
    """Return a path with its selectors, as in a URL."""
    shown = [f"{name}={row[name]}" for name in ("labelSelector", "fieldSelector") if row[name]]
    return f"{row['path']}{'?' if shown else ''}{'&'.join(shown)}"


COMPONENT: Column = ("component", lambda row: row["component"] or "(unnamed)")
COMPONENTS: Sequence[Column] = (
    COMPONENT,
    *named("requests", "errors"),
    ("watching", of_field("watches")),
    ("bytes", _size_of("bytes")),
    ("over the link", _size_of("cloudBytes")),
    *named("filters"),
    ("last seen", lambda row: row["lastSeen"][11:19]),
)
SOURCES: Sequence[Column] = (
    ("path", selectors),
    *named("from", "state", "objects"),
    ("encoding", lambda row: row["encoding"].rpartition(".")[2].removeprefix("application/")),
    *named("version"),
    ("age", _seconds("age")),
    ("next try", _seconds("nextTry")),
    *named("identity", "error"),
)
VIEWS: Sequence[Column] = (
    *(COMPONENT, ("path", selectors)),
    *named("filters", "kept", "changed", "hidden", "watchers", "version"),
)
WATCHERS: Sequence[Column] = (
    COMPONENT,
    ("path", selectors),
    *named("watchers", "unread", "version", "filters"),
)
ENTRIES: Sequence[Column] = (
    *named("filter", "component", "resources", "verbs"),
    ("does", lambda row: row["does"] if row["matched"] else f"{row['does']}; matched no component"),
    ("keeps", of_field("kept")),
    ("changes", of_field("changed")),
    ("hides", of_field("hidden")),
    *named("from"),
)


def status_text(report: Row) -> str:
    counts, rules = report["bytes"], report["rules"]
    in_force = rules["digest"][:12] if rules["known"] else f"not known yet: {rules['whyUnknown']}"
    closed = ", ".join(report["closedListeners"])
    lines = [
        *((("", f"{NOT_OPEN}{closed}"),) if closed else ()),
        *((("", drill_text(report["drill"]).rstrip()),) if report["drill"]["link"] != "online" else ()),
        ("", link(report)),
        ("node", report["node"]),
        *((("not ready", report["unfit"]),) if report["unfit"] else ()),
        ("pool", report["pool"] or "-"),
        ("version", f"{report['version']}, mode {report['mode']}"),
        *(
            ("server", f"{server['server']} {server['condition']} {server['reason']}".rstrip())
            for server in report["cloud"]["servers"]
        ),
        ("rules", f"{in_force}, {report['rules']['problems']} problems"),
        *((("filters", f"as before: {rules['filterModules']}"),) if rules["filterModules"] else ()),
        ("sources", "{all}, {following} follow the cloud, {refused} refused".format(**report["sources"])),
        ("watchers", f"{report['watchers']} of {report['views']} views"),
        ("journal", waiting(report["journal"])),
        ("today", f"{size(counts['linkDownToday'])} from the cloud, {size(counts['linkUpToday'])} to it"),
        *((("budget", counts["budget"]),) if counts["budget"] else ()),
        ("copies", f"gave {size(counts['fromCopies'])} of {size(counts['sent'])} that components got"),
    ]
    return "".join(f"{name + ':':9} {text}\n" if name else f"{text}\n" for name, text in lines)


def drill_text(report: Row) -> str:
    """Format the report `link`."""
    if report["link"] != "online":
        return f"{DRILL}{report['text']}; it ends by itself, or with: edgehub link online\n"
    allowed = "allowed" if report["allowed"] else "not allowed: start the hub with --allow-drills"
    return f"the link is as it is; drills are {allowed}\n"


def rules_text(report: Row) -> str:
    plugins, problem = report["filterModules"]["filters"], report["filterModules"]["problem"]
    lines = [f"not the hub's: {plugin['filter']} ({plugin['digest'][:19]})\n" for plugin in plugins]
    if problem:
        lines.append(f"the previous filters stay in force: {problem}\n")
    return table(report["entries"], ENTRIES) + problems_text(report) + "".join(lines)


def problems_text(report: Row) -> str:
    """Format the skipped entries; "" if there are none."""
    lines = [
        f"skipped: key {problem['key']}: {problem['text']!r}: {problem['why']}\n"
        for problem in report["problems"]
    ]
    if report["unnamedProblems"]:
        lines.append(f"skipped: {report['unnamedProblems']} more entries\n")
    return "".join(lines)


def explain_text(report: Row) -> str:
    """Format an explanation of one object, or of a complete resource."""
    lines = [f"{report['component']} {report['verb']} {report['path']}"]
    if report["route"]:
        lines.append(f"route: {report['route']} ({report['reason']})")
    lines += [f"rule: {rule}" for rule in report["rules"]]
    lines += [f"filter: {name}" for name in report["filters"]]
    lines += [f"  {_note(note)}" for note in report["notes"]]
    named = (("object", report["outcome"]), ("from", report["origin"]), ("note", report["problem"]))
    lines += [f"{name}: {said}" for name, said in named if said]
    lines += [f"note: {hint}" for hint in report["hints"]]
    if "counts" in report:
        lines += _objects(report)
    return "\n".join(lines) + "\n"


def _objects(report: Row) -> list[str]:
    """Return lines with the number of objects by verdict, and the reasons for the first ones."""
    counts = report["counts"]
    lines = [", ".join(f"{count} {outcome}" for outcome, count in counts.items())]
    for item in report["objects"]:
        lines.append(f"{key_text((item['namespace'], item['name']))}: {item['outcome']}")
        lines += [f"  {_note(note)}" for note in item["reasons"]]
    left = counts["hidden"] + counts["changed"] - len(report["objects"])
    return [*lines, f"and {left} more: name a namespace"] if left > 0 else lines


def _note(note: Row) -> str:
    return f"{note['filter']}: {note['subject']} {note['outcome']}: {note['reason']}"


def journal_text(report: Row) -> str:
    lines = [
        f"{waiting(report['waiting'])}: {plural(len(report['statuses']), 'status', 'statuses')}, "
        f"{plural(report['events'], 'event')}"
    ]
    lines += [f"  {path}" for path in report["statuses"]]
    lines += [f"replayed: {row['count']} of kind {row['kind']}" for row in report["replayed"]]
    lines += [f"dropped: {row['count']} of kind {row['kind']} ({row['reason']})" for row in report["dropped"]]
    return "\n".join(lines) + "\n"


def trial_text(report: Row) -> str:
    lines = [] if report["changes"] else ["the edit changes no rule\n"]
    for row in report["components"]:
        lines.append(_difference(row))
    for row in report["unseen"]:
        lines.append(
            f"{row['component']}: {_chain(row['before'])} becomes {_chain(row['after'])}; "
            "it has not asked for what they filter\n"
        )
    for kind, phrase in (("gained", "are kept for an outage from now on"), ("lost", "are no longer kept")):
        if report["cached"][kind]:
            lines.append(f"reads of {', '.join(report['cached'][kind])} {phrase}\n")
    lost = report["lost"]
    lines.append(f"lost: {lost['objects']} objects, {lost['endpoints']} endpoints\n")
    if report["untried"]:
        named = ", ".join(report["untried"])
        lines.append(f"not tried: the hub has no copy of what they read: {named}\n")
    if not report["complete"]:
        lines.append("the hub ran out of time: there is more\n")
    return "".join(lines) + problems_text(report)


def _difference(row: Row) -> str:
    lines = [
        f"{row['component'] or '(unnamed)'} {'/'.join(row['verbs'])} {row['resource']}: "
        f"{_chain(row['before'])} becomes {_chain(row['after'])}"
    ]
    if not row["copy"]:
        return lines[0] + "\n  the hub has no copy to try it on\n"
    ends = row["endpoints"]
    counts = ", ".join(f"{row[kind]['count']} {kind}" for kind in ("gained", "lost", "changed"))
    also = f", {row['unknown']} unknown" if row["unknown"] else ""
    lines.append(
        f"  of {row['objects']} objects: {counts}{also}; endpoints in them: {ends['before']} to {ends['after']}"
    )
    lines += [f"  + {name}" for name in row["gained"]["names"]]
    for mark, kind in (("-", "lost"), ("~", "changed")):
        for filter_ in row[kind]["names"]:
            lines.append(f"  {mark} {filter_['name']}")
            lines += [f"      {reason}" for reason in filter_["reasons"]]
    return "\n".join(lines) + "\n"


def _chain(names: Sequence[str]) -> str:
    return ", ".join(names) or "no filter"


TEXTS: Mapping[str, Callable[[Any], str]] = {
    "status": status_text,
    "components": lambda rows: table(rows, COMPONENTS),
    "sources": lambda rows: table(rows, SOURCES),
    "views": lambda rows: table(rows, VIEWS),
    "watchers": lambda rows: table(rows, WATCHERS),
    "rules": rules_text,
    "link": drill_text,
    "journal": journal_text,
    "explain": explain_text,
    "rules/try": trial_text,
}
"""Formatting functions by the report's name."""
