"""Which connections end before their first request, and what passes an upgraded one."""

from __future__ import annotations

import itertools

import pytest
from mitmproxy import connection
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.test import tflow

from addons import connections
from addons.connections import FIRST_REQUEST, Connections
from addons.requests.exchange.open_connections import OWN_DESCRIPTORS, OpenConnections

MANY = 100_000
_ids = itertools.count()


def client_of() -> connection.Client:
    made = tflow.tclient_conn()
    made.peername, made.sockname = ("10.0.0.1", 40_000), ("10.0.0.9", 10268)
    made.id, made.proxy_mode = f"client {next(_ids)}", ProxyMode.parse("hub:tls@10268")
    return made


def test_a_connection_that_is_too_many_is_refused() -> None:
    limits = Connections(OpenConnections(OWN_DESCRIPTORS))
    client = client_of()
    limits.client_connected(client)
    assert client.error == "too many connections"


def test_what_passes_an_upgraded_connection_is_not_kept() -> None:
    flow = tflow.ttcpflow()
    assert flow.messages
    Connections(OpenConnections(MANY)).tcp_message(flow)
    assert flow.messages == []


class Layer:
    """As the HTTP layer of a connection: since when it waits for its client."""

    def __init__(self, waits: float | None) -> None:
        self._waits = waits

    def waits_since(self, _connected: float) -> float | None:
        return self._waits


@pytest.mark.parametrize(
    ("layer", "is_closed"), [(None, True), (Layer(0.0), True), (Layer(10.0), False), (Layer(None), False)]
)
def test_a_client_that_says_nothing_is_closed(
    monkeypatch: pytest.MonkeyPatch, layer: Layer | None, is_closed: bool
) -> None:
    closed: list[str] = []
    now = 0.0
    monkeypatch.setattr(connections, "layer_of", lambda _: layer)

    def close(client_id: str, _why: str) -> bool:
        closed.append(client_id)
        return True

    monkeypatch.setattr(connections, "close_client", close)
    limits = Connections(OpenConnections(MANY), lambda: now)
    limits.client_connected(client_of())
    assert limits._close_late() == 0
    now = FIRST_REQUEST + 1
    assert limits._close_late() == len(closed) == int(is_closed)


def test_a_lent_way_may_be_silent_and_one_that_does_not_open_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now, closed, opened = 0.0, list[str](), client_of()

    def close(client_id: str, _why: str) -> bool:
        closed.append(client_id)
        return True

    monkeypatch.setattr(connections, "close_client", close)
    monkeypatch.setattr(connections, "is_open", lambda each: each == opened.id)
    limits = Connections(OpenConnections(MANY), lambda: now)
    waiting = client_of()
    for each in (opened, waiting):
        limits.client_connected(each)
    now = FIRST_REQUEST + 1
    assert limits._close_late() == 1
    assert closed == [waiting.id]
