"""mitmproxy's content views for Kubernetes: objects and watches as YAML, and the filters' verdicts on an answer's
objects, as a table and as a diff with reasons.
"""

from __future__ import annotations

import difflib
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from mitmproxy import contentviews
from mitmproxy.contentviews import Contentview, Metadata, SyntaxHighlight

from addons.filters.verdict import Outcome
from addons.ui.dry_run import DryRunResult, Note
from addons.ui.flows.bodies import NOTE
from addons.ui.flows.flow_records import FilteredRead, FlowRecord, record_of
from addons.ui.masking import Visible
from addons.ui.readable import as_yaml, object_tree, readable_body, readable_watch
from kube.requests.continue_tokens import key_text
from kube.store.store import Key
from kube.tables.cells import aligned
from kube.wire.codec import ListPage, codec_for
from kube.wire.encoding import Encoding
from kube.wire.protobuf_codec import MAGIC

MAX_DRY_RUNS = 500
"""Maximum objects evaluated for one diff, which takes some tens of milliseconds of the event loop."""
MAX_LINES = 4_000
"""Maximum lines of a diff."""
AS_OF_NOW = ", as of now"
"""Note that verdicts are current: a flow may be old, but dry runs use the present objects and rules."""
CONTEXT = 3
"""Unchanged lines around each changed one."""


def table(encoding: Encoding, body: bytes, record: FlowRecord) -> str:
    """Format a list as a table: namespace, name, version, bytes and verdict. ValueError if the body is not a list."""
    page = codec_for(encoding).decode_list(body)
    results = _dry_runs(record.filtered)
    got = {key: (version, len(raw)) for key, version, raw in _objects(encoding, page.items)}
    rows = [("NAMESPACE", "NAME", "VERSION", "BYTES", "OUTCOME")]
    for key, (version, size) in list(got.items())[:MAX_LINES]:
        outcome = results[key].outcome if key in results else Outcome.KEPT
        rows.append((*key, str(version), str(size), outcome))
    for key, verdict in results.items():
        if key not in got and verdict.outcome is Outcome.DROPPED:
            item, why = verdict.item, f"{verdict.outcome}: {verdict.why}"
            rows.append((*key, str(item.version), str(len(item.raw)), why))
    outcomes = [row[4].partition(":")[0] for row in rows[1:]]
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in Outcome)
    total = sum(size for _, size in got.values())
    left_out = f", {len(got) - MAX_LINES} not shown" if len(got) > MAX_LINES else ""
    now = AS_OF_NOW if record.filtered is not None else ""
    head = f"# {page.kind}List, {len(got)} objects, {total} bytes: {counts}{left_out}{now}\n"
    return head + "\n".join((*aligned(rows, numbers=(2, 3)), ""))


def difference(body: bytes, record: FlowRecord, encoding: Encoding) -> str:
    """Format the difference between the cloud's present objects and those in a body: dropped and changed objects, with
    reasons.
    """
    if record.filtered is None or not record.filtered.filters:
        return "# no filter applies now to what this component reads here: it gets what the cloud sends\n"
    codec = codec_for(encoding)
    try:
        page = codec.decode_list(body)
    except ValueError:
        api_version, kind, raw = codec.decode_single(body)
        page = ListPage(api_version, kind, 0, "", None, [raw])
    got = {key: raw for key, _, raw in _objects(encoding, page.items)}
    lines: list[str] = []
    counts = dict.fromkeys(Outcome, 0)
    for key, result in _dry_runs(record.filtered).items():
        counts[result.outcome] += 1
        if result.outcome is Outcome.KEPT or len(lines) >= MAX_LINES:
            continue
        after = None if result.outcome is Outcome.DROPPED else got.get(key)
        lines += _of_object(page, encoding, result, after, visible=record.visible)
    filters = ", ".join(filter_.name for filter_ in record.filtered.filters)
    head = f"# {filters}: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + AS_OF_NOW
    cut = ["# and more"] if len(lines) > MAX_LINES else []
    return "\n".join((head, *lines[:MAX_LINES], *cut, ""))


def _dry_runs(filtered: FilteredRead | None) -> dict[Key, DryRunResult]:
    by_key: dict[Key, DryRunResult] = {}
    if filtered is None or not filtered.filters:
        return by_key
    for item in filtered.items():
        if len(by_key) >= MAX_DRY_RUNS:
            break
        by_key[item.key] = filtered.dry_run(item)
    return by_key


def _objects(encoding: Encoding, raws: Iterable[bytes]) -> Iterator[tuple[Key, int, bytes]]:
    codec = codec_for(encoding)
    for raw in raws:
        peek = codec.peek(raw)
        yield (peek.namespace, peek.name), peek.version, raw


def _of_object(
    page: ListPage[bytes], encoding: Encoding, result: DryRunResult, after: bytes | None, *, visible: Visible
) -> Iterator[str]:
    name = key_text(result.item.key)
    yield ""
    yield f"# {name} {result.outcome}: {result.why}"
    if result.outcome is Outcome.CHANGED and after is None:
        yield "# this answer does not have it"
        return
    before = _lines(result.item.raw, result.item.store.codec.encoding, page, visible=visible)
    shown = _lines(after, encoding, page, visible=visible) if after is not None else []
    for line in list(difflib.unified_diff(before, shown, n=CONTEXT, lineterm=""))[2:]:
        if not line.startswith("@@"):
            yield line + _reason(line, result.notes)


def _lines(raw: bytes, encoding: Encoding, page: ListPage[bytes], *, visible: Visible) -> list[str]:
    tree = object_tree(encoding, page.api_version, page.kind, raw, visible=visible)
    # A JSON client's fields have another order than those of a protobuf copy.
    return as_yaml(tree, in_order=False).splitlines()


def _reason(line: str, notes: Iterable[Note]) -> str:
    """Return why a line is missing: the decision whose subject occurs in the line; "" without one."""
    if not line.startswith("-"):
        return ""
    for note in notes:
        subject = note.subject.split(",")[0]
        if (
            note.outcome == Outcome.DROPPED
            and subject != "object"
            and line.endswith((f" {subject}", f"'{subject}'"))
        ):
            return f"  # {note.filter}: {note.reason}"
    return ""


PRIORITY = 2.0
"""Above 1, the priority of mitmproxy's own JSON view."""
NEVER = -1.0

_TYPED = re.compile(rb'\s*\{[^{}\[]{0,200}"apiVersion"\s*:')
"""Pattern of the beginning of an object or list. If it begins with another field, mitmproxy's JSON view is used."""
_EVENT = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?:ADDED|MODIFIED|DELETED|BOOKMARK|ERROR)"')


class KubernetesView(Contentview):
    """Base class of these views: a name, and YAML highlighting."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def syntax_highlight(self) -> SyntaxHighlight:
        return "yaml"

    def prettify(self, data: bytes, metadata: Metadata) -> str:
        """Format a body, or show the note that the hub has stored instead of it."""
        if data.startswith(NOTE):
            return data.decode(errors="replace")
        return self._prettify(data, metadata)

    def render_priority(self, data: bytes, metadata: Metadata) -> float:
        """Return a priority that never selects this view: only the user does."""
        return NEVER

    @abstractmethod
    def _prettify(self, data: bytes, metadata: Metadata) -> str:
        """Format a body. ValueError if this view cannot parse it."""


class ObjectView(KubernetesView):
    """Shows objects, lists and Statuses."""

    def _prettify(self, data: bytes, metadata: Metadata) -> str:
        return readable_body(_encoding(data), data, visible=record_of(metadata.flow).visible)

    def render_priority(self, data: bytes, metadata: Metadata) -> float:
        if data.startswith(NOTE) and metadata.websocket_message is None:
            return PRIORITY
        match metadata.content_type:
            case Encoding.PROTOBUF:
                return PRIORITY if data.startswith(MAGIC) else NEVER
            case Encoding.JSON:
                return PRIORITY if _TYPED.match(data) else NEVER
        return NEVER


class WatchView(KubernetesView):
    """Shows watches event by event: the messages of an open watch, or a saved body."""

    def _prettify(self, data: bytes, metadata: Metadata) -> str:
        encoding = Encoding.JSON if _EVENT.match(data) else Encoding.PROTOBUF
        return readable_watch(encoding, data, visible=record_of(metadata.flow).visible)

    def render_priority(self, data: bytes, metadata: Metadata) -> float:
        if data.startswith(NOTE) and metadata.websocket_message is not None:
            return PRIORITY
        match metadata.content_type:
            case Encoding.PROTOBUF:
                return NEVER if data.startswith((MAGIC, NOTE)) or not data else PRIORITY
            case Encoding.JSON:
                return PRIORITY if _EVENT.match(data) else NEVER
        return NEVER


class TableView(KubernetesView):
    """Shows each object of a list as a line with its size and the filters' verdict."""

    def _prettify(self, data: bytes, metadata: Metadata) -> str:
        return table(_encoding(data), data, record_of(metadata.flow))


class DifferenceView(KubernetesView):
    """Shows the difference between the cloud's objects and those that the component got, with reasons."""

    def _prettify(self, data: bytes, metadata: Metadata) -> str:
        return difference(data, record_of(metadata.flow), _encoding(data))


VIEWS: tuple[Contentview, ...] = (
    ObjectView("Kubernetes"),
    WatchView("Kubernetes watch"),
    TableView("Kubernetes table"),
    DifferenceView("Kubernetes diff"),
)


ATTACHED = VIEWS[:2]
"""The views that need no running hub."""


def register(views: Sequence[Contentview] = VIEWS) -> None:
    """Register views with mitmproxy, once per process. They have no state, so they are never removed."""
    for view in views:
        if view.name.lower() not in contentviews.registry:
            contentviews.add(view)


def _encoding(data: bytes) -> Encoding:
    return Encoding.PROTOBUF if data.startswith(MAGIC) else Encoding.JSON
