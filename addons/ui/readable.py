"""Formats bodies of the Kubernetes API as YAML: objects, lists and watches, in both encodings.

This runs in the hub's event loop, so the work is bounded: a large body gets one line for each object. Values of Secrets
are hidden unless `visible` allows them.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import yaml

from addons.ui.masking import DEFAULT_VISIBILITY, Tree, Visible, masked
from kube.requests.continue_tokens import key_text
from kube.schemas.json_objects import shown_object
from kube.store.store import Item
from kube.tables.cells import aligned
from kube.tables.server_table import TABLE
from kube.wire.api_objects import decode_object
from kube.wire.codec import INITIAL_EVENTS_END, Codec, FrameReader, ListPage, WatchFrame, codec_for
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object

READABLE_BYTES = 128 * 1024
"""Maximum bytes of a body that is shown with all fields, which takes some 40 ms; twice that for protobuf."""
LINES = 2_000
"""Maximum objects or events shown of a larger body, one line each; a line takes some microseconds."""
PARSE_SIZE = 4_096
"""Bytes of a watch parsed at a time: events before a malformed one are still shown."""


def readable_body(encoding: Encoding, body: bytes, visible: Visible = DEFAULT_VISIBILITY) -> str:
    """Format a single object, a Status or a list. ValueError if the body is none of these."""
    codec = codec_for(encoding)
    api_version, kind, raw = codec.decode_single(body)
    if kind.removesuffix("List") not in ("", kind):
        return _list(codec, codec.decode_list(body), complete=len(body) <= READABLE_BYTES, visible=visible)
    tree = object_tree(encoding, api_version, kind, raw, visible=visible)
    if (api_version, kind) == TABLE:
        return _cells(tree)
    if len(body) > READABLE_BYTES:
        return orjson.dumps(tree, option=orjson.OPT_INDENT_2).decode()
    return as_yaml(tree)


def _cells(table: Tree) -> str:
    """Format a Table like kubectl's wide output. ValueError if it is malformed."""
    columns, rows = table.get("columnDefinitions"), table.get("rows")
    try:
        lines = [[column["name"].upper() for column in columns or ()]]
        lines += [[str(cell) for cell in row["cells"]] for row in (rows or ())[:LINES]]
        text = "\n".join((*aligned(lines, gap="   "), ""))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no Table: {error}") from None
    left_out = len(rows or ()) - LINES
    return f"{text}# and {left_out} more\n" if left_out > 0 else text


def readable_watch(encoding: Encoding, body: bytes, visible: Visible = DEFAULT_VISIBILITY) -> str:
    """Format the events of a watch, one document each. A comment describes trailing incomplete bytes."""
    codec = codec_for(encoding)
    complete = len(body) <= READABLE_BYTES
    documents: list[str] = []
    left_out = 0
    remark = ""
    try:
        for frame in _frames(codec.frames(), body):
            if len(documents) < LINES:
                documents.append(readable_event(codec, frame, complete=complete, visible=visible))
            else:
                left_out += 1
    except ValueError as error:
        remark = f"# {error}\n"
    if left_out:
        remark = f"# and {left_out} more events\n{remark}"
    return "---\n".join((*documents, remark) if remark else documents)


def _frames(reader: FrameReader, body: bytes) -> Iterator[WatchFrame]:
    for at in range(0, len(body), PARSE_SIZE):
        yield from reader.feed(body[at : at + PARSE_SIZE])
    reader.close()


def readable_event(
    codec: Codec, frame: WatchFrame, *, complete: bool, visible: Visible = DEFAULT_VISIBILITY
) -> str:
    """Format one event of a watch; if `complete`, with all fields of its object."""
    shown: Tree = {"type": frame.type, "kind": frame.kind, "apiVersion": frame.api_version}
    if frame.status is not None:
        error = frame.status
        error_fields = {"code": error.code, "reason": error.reason, "message": error.message}
        return as_yaml(shown | error_fields)
    try:
        peek = codec.peek(frame.raw)
    except ValueError as error:
        return as_yaml(shown | {"malformed": str(error)})
    if peek.name:
        shown["object"] = key_text((peek.namespace, peek.name))
    shown["resourceVersion"] = str(peek.version)
    shown["bytes"] = len(frame.raw)
    if frame.type == "BOOKMARK":
        obj = decode_object(codec.encoding, frame.api_version, frame.kind, frame.raw)
        return as_yaml(shown | ({"initialEventsEnd": True} if INITIAL_EVENTS_END in obj.annotations else {}))
    if complete:
        shown["content"] = object_tree(
            codec.encoding, frame.api_version, frame.kind, frame.raw, visible=visible
        )
    return as_yaml(shown)


def readable_table(encoding: Encoding, body: bytes) -> str:
    """Format a list with one line per object, whatever its size. ValueError if it is not a list."""
    codec = codec_for(encoding)
    return _list(codec, codec.decode_list(body), complete=False, visible=DEFAULT_VISIBILITY)


def _list(codec: Codec, page: ListPage[bytes], *, complete: bool, visible: Visible) -> str:
    head: Tree = {
        "kind": f"{page.kind}List",
        "apiVersion": page.api_version,
        "resourceVersion": str(page.version),
        "items": len(page.items),
    }
    if page.continue_token:
        head |= {"continue": page.continue_token, "remainingItemCount": page.remaining}
    if complete:
        trees = (
            object_tree(codec.encoding, page.api_version, page.kind, raw, visible=visible)
            for raw in page.items
        )
        return "---\n".join((as_yaml(head), *map(as_yaml, trees)))
    lines = [_line(codec, raw) for raw in page.items[:LINES]]
    if len(page.items) > LINES:
        lines.append(f"# and {len(page.items) - LINES} more")
    return "\n".join((f"{as_yaml(head)}---", *lines, ""))


def _line(codec: Codec, raw: bytes) -> str:
    try:
        peek = codec.peek(raw)
    except ValueError as error:
        return f"- # malformed: {error}"
    return f"- {key_text((peek.namespace, peek.name))} # resourceVersion {peek.version}, {len(raw)} bytes"


def object_tree(
    encoding: Encoding, api_version: str, kind: str, raw: bytes, visible: Visible = DEFAULT_VISIBILITY
) -> Tree:
    """Return an object as plain values, without secrets. ValueError if it is malformed."""
    is_json = encoding is Encoding.JSON
    tree = parse_object(raw) if is_json else shown_object(api_version, kind, raw)
    return masked(kind, tree if visible.managed_fields else _folded(tree), visible)


def item_tree(item: Item, visible: Visible = DEFAULT_VISIBILITY) -> Tree:
    """Return a stored object as plain values, without secrets."""
    store = item.store
    return object_tree(store.codec.encoding, store.api_version, store.kind, item.raw, visible)


def _folded(tree: Tree) -> Tree:
    """Replace managedFields by their number: they are long and seldom of interest."""
    metadata = tree.get("metadata")
    managed = metadata.get("managedFields") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(managed, list):
        return tree
    return {**tree, "metadata": {**metadata, "managedFields": f"({len(managed)}, folded)"}}


class _Dumper(yaml.CSafeDumper):
    """Writes repeated values in full, without YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def as_yaml(tree: Tree, *, in_order: bool = True) -> str:
    """Format plain values as YAML, with fields in their order or, unless `in_order`, sorted by name."""
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=not in_order, allow_unicode=True, width=120)
    return text
