"""The flows of a hub, made again from its records."""

from __future__ import annotations

import io
from typing import Any

from mitmproxy.io import tnetstring
from mitmproxy.test import tflow
from mitmproxy.websocket import WebSocketMessage
from wsproto.frame_protocol import Opcode

from addons.ui.commands.attached_flows import AttachedFlows, records
from addons.ui.flows.live_watches import MAX_EVENTS


def record(flow: Any, *messages: str, live: bool = True) -> dict[str, Any]:
    made = [WebSocketMessage(Opcode.TEXT, False, each.encode(), 1.0).get_state() for each in messages]
    return {"flow": flow.get_state(), "messages": made, "is_watch": bool(messages), "live": live}


def test_a_flow_is_the_same_from_its_beginning_to_its_end() -> None:
    flows, sent = AttachedFlows(), tflow.tflow()
    first = flows.take(record(sent))
    sent.comment = "kubelet ▸ relay"
    last = flows.take(record(sent, live=False))
    assert (first.is_new, first.is_over, last.is_new, last.is_over) == (True, False, False, True)
    assert last.flow is first.flow
    assert last.flow.comment == "kubelet ▸ relay"
    assert flows.rest() == []


def test_a_watch_gathers_its_messages_up_to_a_bound() -> None:
    flows, sent = AttachedFlows(), tflow.tflow()
    flows.take(record(sent, "first"))
    flow = flows.take(record(sent, "second")).flow
    assert flow.websocket is not None
    assert [each.content for each in flow.websocket.messages] == [b"first", b"second"]
    flows.take(record(sent, *map(str, range(MAX_EVENTS))))
    assert len(flow.websocket.messages) == MAX_EVENTS
    assert flows.rest() == [flow]
    assert flow.websocket.close_code == 1000


def test_records_end_with_the_hub_and_not_with_an_error() -> None:
    whole = tnetstring.dumps({"dropped": 1})
    assert list(records(io.BytesIO(tnetstring.dumps(None) + whole + whole[:-4]))) == [{"dropped": 1}]
