"""Which connections are too many, and which take too long."""

from __future__ import annotations

import asyncio
import itertools
import logging
import resource
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import connection
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.test import tflow

from addons.proxy import connection_limits
from addons.proxy.connection_limits import (
    FIRST_REQUEST,
    OWN_DESCRIPTORS,
    Connections,
    _is_reserved,
    quieten_accept,
    raise_descriptor_limit,
)
from addons.requests.caller import Listener
from addons.requests.exchange.client_addresses import MAX_CONNECTIONS
from addons.telemetry import metrics
from tests.addons.support.observed import value_of

MANY = 100_000
_ids = itertools.count()


def client_of(address: str = "10.0.0.1", listener: Listener = Listener.TLS) -> connection.Client:
    made = tflow.tclient_conn()
    made.peername, made.sockname = (address, 40_000), ("10.0.0.9", 10268)
    made.id, made.proxy_mode = f"client {next(_ids)}", ProxyMode.parse(f"hub:{listener}@10268")
    return made


def is_refused(limits: Connections, client: connection.Client) -> bool:
    limits.client_connected(client)
    return bool(client.error)


def test_a_peer_has_a_bound_and_others_are_not_concerned() -> None:
    limits = Connections(MANY)
    mine = [client_of() for _ in range(MAX_CONNECTIONS)]
    assert not any(is_refused(limits, each) for each in mine)
    before = value_of(metrics.CONNECTIONS_REFUSED.labels("peer"))
    late = client_of()
    assert is_refused(limits, late)
    assert value_of(metrics.CONNECTIONS_REFUSED.labels("peer")) == before + 1
    assert not is_refused(limits, client_of("10.0.0.2"))
    assert not is_refused(limits, client_of(listener=Listener.PLAIN)), "kubelet's has no bound for a peer"
    for each in (late, *mine):
        limits.client_disconnected(each)
        limits.client_disconnected(each)
    assert not is_refused(limits, client_of())


def test_descriptors_are_left_to_the_plain_port() -> None:
    limits = Connections(OWN_DESCRIPTORS + 40)
    # A quarter of 104 is reserved: 14 connections are left, of clients or to servers.
    addresses = (f"10.0.0.{number}" for number in range(100))
    taken = sum(not is_refused(limits, client_of(each)) for each in addresses)
    assert taken == 14
    limits = Connections(OWN_DESCRIPTORS + 40)
    opened = 15
    limits.count_own(lambda: opened)
    assert not limits.has_room(client_of())
    assert limits.has_room(client_of(listener=Listener.PLAIN))
    opened = 0
    assert limits.has_room(client_of())


@pytest.mark.parametrize("listener", list(Listener))
def test_descriptors_are_left_for_the_node_and_the_hub_itself(listener: Listener) -> None:
    assert _is_reserved(client_of(listener=listener)) is (listener is Listener.PLAIN)


def test_what_passes_an_upgraded_connection_is_not_kept() -> None:
    flow = tflow.ttcpflow()
    assert flow.messages
    Connections(MANY).tcp_message(flow)
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
    monkeypatch.setattr(connection_limits, "layer_of", lambda _: layer)

    def close(client_id: str, _why: str) -> bool:
        closed.append(client_id)
        return True

    monkeypatch.setattr(connection_limits, "close_client", close)
    limits = Connections(MANY, lambda: now)
    limits.client_connected(client_of())
    assert limits._close_late() == 0
    now = FIRST_REQUEST + 1
    assert limits._close_late() == len(closed) == int(is_closed)


def test_the_soft_limit_is_raised_as_far_as_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        connection_limits,
        "resource",
        SimpleNamespace(
            getrlimit=lambda _: (1024, 4096),
            setrlimit=lambda _, limits: asked.append(limits),
            RLIMIT_NOFILE=resource.RLIMIT_NOFILE,
            RLIM_INFINITY=resource.RLIM_INFINITY,
        ),
    )
    assert raise_descriptor_limit() == 4096
    assert asked == [(4096, 4096)]


async def test_what_cannot_be_accepted_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    loop, others, now = asyncio.get_running_loop(), [], 0.0
    loop.set_exception_handler(lambda _, context: others.append(context["message"]))
    quieten_accept(loop, lambda: now)
    with caplog.at_level(logging.ERROR):
        for moment in (0.0, 1.0, 59.0, 61.0):
            now = moment
            loop.call_exception_handler(
                {"message": "socket.accept() out of system resource", "exception": "x"}
            )
        loop.call_exception_handler({"message": "another"})
    assert len(caplog.records) == 2
    assert others == ["another"]


def test_a_lent_way_may_be_silent_and_one_that_does_not_open_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now, closed, opened = 0.0, list[str](), client_of()

    def close(client_id: str, _why: str) -> bool:
        closed.append(client_id)
        return True

    monkeypatch.setattr(connection_limits, "close_client", close)
    monkeypatch.setattr(connection_limits, "is_open", lambda each: each == opened.id)
    limits = Connections(MANY, lambda: now)
    waiting = client_of()
    for each in (opened, waiting):
        limits.client_connected(each)
    now = FIRST_REQUEST + 1
    assert limits._close_late() == 1
    assert closed == [waiting.id]
