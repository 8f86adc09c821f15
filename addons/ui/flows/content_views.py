"""mitmproxy's content views for Kubernetes: objects and watches as YAML, tables, and what filters changed."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence

from mitmproxy import contentviews
from mitmproxy.contentviews import Contentview, Metadata, SyntaxHighlight

from addons.ui.flows.bodies import NOTE
from addons.ui.flows.differences import difference, table
from addons.ui.flows.flow_records import record_of
from addons.ui.readable import readable_body, readable_watch
from kube.wire.encoding import Encoding
from kube.wire.protobuf_codec import MAGIC

PRIORITY = 2.0
"""Higher than the priority of mitmproxy's own view of JSON, which is 1."""
NEVER = -1.0

_TYPED = re.compile(rb'\s*\{[^{}\[]{0,200}"apiVersion"\s*:')
"""The beginning of an object or a list. Where another field comes first, mitmproxy's own JSON view shows the body."""
_EVENT = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?:ADDED|MODIFIED|DELETED|BOOKMARK|ERROR)"')


class KubernetesView(Contentview):
    """What all views of this module share: a name, and YAML's colours."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def syntax_highlight(self) -> SyntaxHighlight:
        return "yaml"

    def prettify(self, data: bytes, metadata: Metadata) -> str:
        """Shows the note that the hub keeps in place of a body."""
        if data.startswith(NOTE):
            return data.decode(errors="replace")
        return self._prettify(data, metadata)

    def render_priority(self, data: bytes, metadata: Metadata) -> float:
        """No body selects this view: a person chooses it."""
        return NEVER

    @abstractmethod
    def _prettify(self, data: bytes, metadata: Metadata) -> str:
        """Render a body as text; ValueError where this view cannot read it."""


class ObjectView(KubernetesView):
    """Objects, lists and Statuses."""

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
    """Watches, one event after the other: the messages of an open one, or a body that somebody kept."""

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
    """A line for each object of a list: its size, and what filters made of it."""

    def _prettify(self, data: bytes, metadata: Metadata) -> str:
        return table(_encoding(data), data, record_of(metadata.flow))


class DifferenceView(KubernetesView):
    """Compares the cloud's objects with those that the component got, with the reason at each."""

    def _prettify(self, data: bytes, metadata: Metadata) -> str:
        return difference(data, record_of(metadata.flow), _encoding(data))


VIEWS: tuple[Contentview, ...] = (
    ObjectView("Kubernetes"),
    WatchView("Kubernetes watch"),
    TableView("Kubernetes table"),
    DifferenceView("Kubernetes diff"),
)


ATTACHED = VIEWS[:2]
"""Those that ask nothing of a running hub."""


def register(views: Sequence[Contentview] = VIEWS) -> None:
    """Register views with mitmproxy, once in a process. They have no state, so nothing removes them."""
    for view in views:
        if view.name.lower() not in contentviews.registry:
            contentviews.add(view)


def _encoding(data: bytes) -> Encoding:
    return Encoding.PROTOBUF if data.startswith(MAGIC) else Encoding.JSON
