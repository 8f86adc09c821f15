"""What passes an upgraded connection is forgotten, and some clients have descriptors left for them."""

from __future__ import annotations

import pytest
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.test import tflow

from addons.connections import Connections, _is_reserved
from addons.requests.caller import Listener


def test_what_passes_an_upgraded_connection_is_not_kept() -> None:
    flow = tflow.ttcpflow()
    assert flow.messages
    Connections().tcp_message(flow)
    assert flow.messages == []


@pytest.mark.parametrize("listener", list(Listener))
def test_descriptors_are_left_for_the_node_and_the_hub_itself(listener: Listener) -> None:
    client = tflow.tclient_conn()
    client.proxy_mode = ProxyMode.parse(f"hub:{listener}@1")
    assert _is_reserved(client) is (listener is Listener.PLAIN)
