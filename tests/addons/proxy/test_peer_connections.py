"""What one address may have of a listener, over all its connections."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from mitmproxy.test import tflow

from addons.proxy import peer_connections
from addons.proxy.peer_connections import FAIR_UNREAD, MAX_ALL_UNREAD, PeerConnections, peer_of


@dataclass(eq=False)
class Layer:
    """Stands for the layer of one connection."""

    held: int = 0
    streams: dict[int, object] = field(default_factory=dict)


def test_connections_of_one_address_and_port_belong_together() -> None:
    one, other, elsewhere = tflow.tclient_conn(), tflow.tclient_conn(), tflow.tclient_conn()
    elsewhere.sockname = ("127.0.0.1", 10268)
    peer = peer_of(one)
    assert peer_of(other) is peer
    assert peer_of(elsewhere) is not peer


def test_requests_are_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_connections, "MAX_PEER_STREAMS", 3)
    peer, layers = PeerConnections(), [Layer(), Layer()]
    peer.layers.update(layers)
    for number in range(4):
        layers[number % 2].streams[number] = object()
        peer.begin()
        assert peer.has_room is (number < 3)
    layers[0].streams.clear()
    assert peer.has_room


@pytest.mark.parametrize(
    ("mine", "others", "is_too_much"),
    [
        (FAIR_UNREAD, 2 * MAX_ALL_UNREAD, False),
        (FAIR_UNREAD + 1, MAX_ALL_UNREAD, False),
        (MAX_ALL_UNREAD, 2, True),
        (MAX_ALL_UNREAD // 2 + 1, MAX_ALL_UNREAD, True),
        (2 * FAIR_UNREAD, 0, False),
    ],
)
def test_an_address_that_holds_more_than_its_share_holds_too_much(
    mine: int, others: int, is_too_much: bool
) -> None:
    client, other = tflow.tclient_conn(), tflow.tclient_conn()
    client.peername, other.peername = ("10.0.0.1", 1), ("10.0.0.2", 1)
    layers = Layer(mine), Layer(others)
    peers = peer_of(client), peer_of(other)
    for peer, layer in zip(peers, layers, strict=True):
        peer.layers.add(layer)
    assert peers[0].holds_too_much is is_too_much
