"""The flows of a hub, rebuilt from its records by an attached process."""

from __future__ import annotations

import io
from typing import Any

from mitmproxy.io import tnetstring
from mitmproxy.test import tflow
from mitmproxy.websocket import WebSocketMessage
from wsproto.frame_protocol import Opcode

from addons.ui.commands.attached_flows import AttachedFlows, records
from addons.ui.flows.live_watches import MAX_EVENTS


def record(flow: Any, *messages: str, live: bool = True, hold: int = 0) -> dict[str, Any]:
    made = [WebSocketMessage(Opcode.TEXT, False, each.encode(), 1.0).get_state() for each in messages]
    return {
        "flow": flow.get_state(),
        "messages": made,
        "is_watch": bool(messages),
        "live": live,
        "hold": hold,
    }


def test_all_records_of_a_flow_update_the_same_flow() -> None:
    flows, sent = AttachedFlows(), tflow.tflow()
    first = flows.apply_record(record(sent))
    sent.comment = "kubelet ▸ relay"
    last = flows.apply_record(record(sent, live=False))
    assert (first.is_new, first.is_over, last.is_new, last.is_over) == (True, False, False, True)
    assert last.flow is first.flow
    assert last.flow.comment == "kubelet ▸ relay"
    assert flows.rest() == []


def test_a_watch_retains_a_bounded_number_of_messages() -> None:
    flows, sent = AttachedFlows(), tflow.tflow()
    flows.apply_record(record(sent, "first"))
    flow = flows.apply_record(record(sent, "second")).flow
    assert flow.websocket is not None
    assert [each.content for each in flow.websocket.messages] == [b"first", b"second"]
    flows.apply_record(record(sent, *map(str, range(MAX_EVENTS))))
    assert len(flow.websocket.messages) == MAX_EVENTS
    assert flows.rest() == [flow]
    assert flow.websocket.close_code == 1000


def test_the_end_of_the_hub_ends_the_records_without_an_error() -> None:
    encoded = tnetstring.dumps({"dropped": 1})
    assert list(records(io.BytesIO(tnetstring.dumps(None) + encoded + encoded[:-4]))) == [{"dropped": 1}]


def test_an_edit_of_an_intercepted_flow_is_sent_once() -> None:
    flows, sent = AttachedFlows(), tflow.tflow(resp=True)
    held = flows.apply_record(record(sent, hold=3)).flow
    assert held.response is not None
    assert (held.intercepted, held.killable) == (True, True)
    held.response.content = b"edited"
    assert flows.decision(held) is None, "nobody has let it go"
    flows.apply_record(record(sent, hold=3))
    assert held.response.content == b"edited", "not as the hub still has it"
    held.resume()
    decision = flows.decision(held)
    assert decision is not None
    assert (decision["flow"], decision["hold"], decision["kill"]) == (sent.id, 3, False)
    assert decision["changes"].keys() == {"content", "headers"}
    assert decision["changes"]["content"] == b"edited"
    assert flows.decision(held) is None


def test_a_killed_flow_is_reported_and_a_resumed_one_is_not_killable() -> None:
    flows, sent = AttachedFlows(), tflow.tflow()
    held = flows.apply_record(record(sent, hold=1)).flow
    held.kill()
    assert flows.decision(held) == {"flow": sent.id, "hold": 1, "changes": {}, "kill": True}
    held = flows.apply_record(record(sent, hold=2)).flow
    flows.apply_record(record(sent))
    assert (held.intercepted, held.killable, flows.decision(held)) == (False, False, None)
