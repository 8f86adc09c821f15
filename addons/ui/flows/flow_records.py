"""What content views know of a flow besides its bytes: who asked, what filters did, and what may be shown."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from mitmproxy.flow import Flow

from addons.requests.request_context import RequestContext
from addons.ui.flows.filtered import FilteredRead
from addons.ui.masking import USUALLY, Visible


@dataclass(frozen=True, slots=True)
class FlowRecord:
    """What the hub knows of one flow of this run."""

    context: RequestContext | None
    filtered: FilteredRead | None
    """None while the hub starts."""
    visible: Visible


_records: WeakKeyDictionary[Flow, FlowRecord] = WeakKeyDictionary()
_NOTHING = FlowRecord(None, None, USUALLY)


def remember(flow: Flow, record: FlowRecord) -> None:
    """Let content views find the record of a flow."""
    _records[flow] = record


def record_of(flow: Flow | None) -> FlowRecord:
    """The record of a flow; an empty one where the flow was loaded from a file, or is a copy."""
    return _records.get(flow, _NOTHING) if flow is not None else _NOTHING
