"""Content views: mitmproxy's interfaces show bodies of the Kubernetes API as YAML."""

from __future__ import annotations

import re

from mitmproxy import contentviews
from mitmproxy.contentviews import Contentview, Metadata, SyntaxHighlight

from addons.ui.readable import readable_body, readable_watch
from kube.wire.encoding import Encoding
from kube.wire.protobuf_codec import MAGIC

PRIORITY = 2.0
"""Above mitmproxy's own view of JSON, which says 1."""
NEVER = -1.0

_TYPED = re.compile(rb'\s*\{[^{}\[]{0,200}"apiVersion"\s*:')
"""The beginning of an object or a list. Where another field comes first, mitmproxy's own JSON view shows the body."""
_EVENT = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?:ADDED|MODIFIED|DELETED|BOOKMARK|ERROR)"')


class ObjectView(Contentview):
    """Objects, lists and Statuses."""

    @property
    def name(self) -> str:
        return "Kubernetes"

    @property
    def syntax_highlight(self) -> SyntaxHighlight:
        return "yaml"

    def prettify(self, data: bytes, metadata: Metadata) -> str:
        return readable_body(Encoding.PROTOBUF if data.startswith(MAGIC) else Encoding.JSON, data)

    def render_priority(self, data: bytes, metadata: Metadata) -> float:
        match metadata.content_type:
            case Encoding.PROTOBUF:
                return PRIORITY if data.startswith(MAGIC) else NEVER
            case Encoding.JSON:
                return PRIORITY if _TYPED.match(data) else NEVER
        return NEVER


class WatchView(Contentview):
    """Watches, one event after the other."""

    @property
    def name(self) -> str:
        return "Kubernetes watch"

    @property
    def syntax_highlight(self) -> SyntaxHighlight:
        return "yaml"

    def prettify(self, data: bytes, metadata: Metadata) -> str:
        return readable_watch(Encoding.JSON if _EVENT.match(data) else Encoding.PROTOBUF, data)

    def render_priority(self, data: bytes, metadata: Metadata) -> float:
        match metadata.content_type:
            case Encoding.PROTOBUF:
                return NEVER if data.startswith(MAGIC) or not data else PRIORITY
            case Encoding.JSON:
                return PRIORITY if _EVENT.match(data) else NEVER
        return NEVER


VIEWS: tuple[Contentview, ...] = (ObjectView(), WatchView())


def add() -> None:
    """Let mitmproxy choose among the views of this module as well."""
    for view in VIEWS:
        contentviews.add(view)


def remove() -> None:
    """Undo `add`."""
    for view in VIEWS:
        # mitmproxy has no call to remove a content view.
        contentviews.registry._by_name.pop(view.name.lower(), None)
