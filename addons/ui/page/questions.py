"""The two parts of the page that a person asks: why a component sees an object so, and what an edit would change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

import yaml

from addons.ui.explain import ExplainRequest, Explanation, explain, explain_resource, hub_source
from addons.ui.page.markup import options, table, text
from addons.ui.reports.status import known_components
from addons.ui.reports.text import Column, Row, named, of_field, plural
from addons.ui.running_hub import RunningHub
from kube.store.store import key_text

MAX_CHOICES = 500
"""Objects in the list to choose from; others can be named in the address."""
NO_FILTER = "no filter"
VERBS = ("watch", "get")
"""The verbs besides `list`, which holds where nobody chooses one."""

NOTES: list[Column] = [*named("filter"), ("about", of_field("subject")), *named("outcome", "reason")]
OBJECTS: list[Column] = [("object", of_field("name")), *named("outcome", "reasons")]
ALIKE: list[Column] = [("objects", of_field("said")), ("named", of_field("names"))]
NAMED = 5
"""Objects that a line names of those that became the same for the same reasons."""


def explain_form(hub: RunningHub, query: Mapping[str, str]) -> str:
    """The lists to choose from. A choice becomes part of the page's address."""
    components = known_components(hub)
    resources = sorted({source.list_watch.type.group_resource for source in hub.sources if not source.user})
    source = hub_source(hub.sources, query.get("resource", "")) if query.get("resource") else None
    items = sorted(key_text(item.key) for item in source.store) if source is not None else []
    choices = (
        ("component", "Component", options(components, query.get("component", ""), "choose")),
        ("resource", "Resource", options(resources, query.get("resource", ""), "choose")),
        ("object", "Object", options(items[:MAX_CHOICES], query.get("object", ""), "all of them")),
        ("verb", "Verb", options(VERBS, query.get("verb", ""), "list")),
    )
    return "".join(
        f'<label>{label} <select name="{name}">{made}</select></label>' for name, label, made in choices
    )


async def explained(hub: RunningHub, query: Mapping[str, str]) -> str:
    """The answer to the choice; "" where nobody has chosen."""
    component, resource = query.get("component", ""), query.get("resource", "")
    if not component or not resource:
        return ""
    namespace, _, name = query.get("object", "").rpartition("/")
    question = ExplainRequest(component, resource, namespace, name, query.get("verb", "") or "list")
    told: Explanation
    if name:
        told = explain(hub, question)
        answer = table(list(map(asdict, told.notes)), NOTES)  # what is hidden as meant is no fault
        counted = f"the object is {told.outcome}, from {told.origin}" if told.outcome else ""
    else:
        told = whole = await explain_resource(hub, question)
        answer = table(_alike(whole.objects, resource), ALIKE)
        counted = ", ".join(f"{count} {outcome}" for outcome, count in whole.counts.items())
    facts = [f"{told.component} {told.verb} {told.path}"]
    facts += [f"route: {told.route} ({told.reason})"] if told.route else []
    facts += [*told.rules, counted, told.problem, *told.hints]
    return "<ul>" + "".join(f"<li>{text(fact)}</li>" for fact in facts if fact) + "</ul>" + answer


def _alike(objects: Iterable[Row], resource: str) -> list[Row]:
    """A line for all objects that became the same for the same reasons: `17 services hidden: its type is …`."""
    alike: dict[tuple[str, str], list[str]] = {}
    for item in objects:
        name = key_text((item["namespace"], item["name"]))
        # What a filter says of the whole object repeats what it said of a part.
        told = [note for note in item["reasons"] if note.subject != "object"] or item["reasons"]
        because = "; ".join(dict.fromkeys(f"{note.filter}: {note.reason}" for note in told))
        alike.setdefault((item["outcome"], because), []).append(name)
    lines: list[Row] = []
    for (outcome, because), names in alike.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        many = plural(len(names), resource.removesuffix("s"), resource)
        lines.append({"said": f"{many} {outcome}: {because}", "names": ", ".join(names[:NAMED]) + more})
    return lines


def rules_text(hub: RunningHub) -> str:
    """The rules in force as a person edits them."""
    data = hub.rules.data() or {}
    return yaml.safe_dump(data, sort_keys=True, width=10_000) if data else ""


def trial_html(trial: Row) -> str:
    """What an edit of the rules would change."""
    lost = trial["lost"]
    head = f"{plural(lost['objects'], 'object')} and {plural(lost['endpoints'], 'endpoint')} would be lost"
    if not trial["changes"]:
        head = "This says what the rules in force say."
    parts = [f'<p class="{"warn" if any(lost.values()) else "good"}">{text(head)}</p>']
    skipped = (
        f"{problem['key']}: {problem['text']!r} is skipped: {problem['why']}" for problem in trial["problems"]
    )
    parts.append("".join(f'<p class="bad">{text(line)}</p>' for line in skipped))
    for row in trial["components"]:
        parts.append(_difference(row))
    for resource in trial["unseen"]:
        change = f"{text(resource['before'] or NO_FILTER)} becomes {text(resource['after'] or NO_FILTER)}"
        parts.append(f"<p>{text(resource['component'])} asked for nothing yet: {change}</p>")
    for kind, words in (("gained", "will be kept for an outage"), ("lost", "will no longer be kept")):
        if trial["cached"][kind]:
            parts.append(f"<p>Reads of {text(trial['cached'][kind])} {words}.</p>")
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
    told = table(rows, OBJECTS, lambda row: marks.get(row["outcome"], "")) if rows else ""
    return f"<h3>{text(title)}</h3><p>{text(filters)}: {text(summary)}</p>{told}"
