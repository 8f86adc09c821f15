"""Which connections are too many, of an address and of the process."""

from __future__ import annotations

import itertools

import pytest

from addons.requests.caller import Listener
from addons.requests.exchange.client_addresses import MAX_CONNECTIONS, ClientAddress, ListenerClients
from addons.requests.exchange.open_connections import OWN_DESCRIPTORS, OpenConnections
from addons.telemetry import metrics
from tests.addons.support.observed import value_of

MANY = 100_000
_ids = itertools.count()


def is_refused(opened: OpenConnections, address: ClientAddress, listener: Listener = Listener.TLS) -> bool:
    return bool(opened.opened(f"client {next(_ids)}", listener, address))


def address() -> ClientAddress:
    return ClientAddress(ListenerClients())


def test_an_address_has_a_bound_and_others_are_not_concerned() -> None:
    opened, mine = OpenConnections(MANY), address()
    assert not any(opened.opened(f"c{number}", Listener.TLS, mine) for number in range(MAX_CONNECTIONS))
    before = value_of(metrics.CONNECTIONS_REFUSED.labels("peer"))
    assert opened.opened("late", Listener.TLS, mine)
    assert value_of(metrics.CONNECTIONS_REFUSED.labels("peer")) == before + 1
    assert not is_refused(opened, address())
    assert not is_refused(opened, mine, Listener.PLAIN), "kubelet's has no bound for an address"
    for client in ("late", "late", "c0", "c0", "c1"):
        opened.closed(client)
    assert not is_refused(opened, mine)
    assert is_refused(opened, mine)


def test_descriptors_are_left_to_the_plain_port() -> None:
    opened = OpenConnections(OWN_DESCRIPTORS + 40)
    # A quarter of 104 is reserved: 14 connections are left, of clients or to servers.
    assert sum(not is_refused(opened, address()) for _ in range(100)) == 14


@pytest.mark.parametrize("listener", list(Listener))
def test_descriptors_are_left_for_the_node_and_the_hub_itself(listener: Listener) -> None:
    opened, own = OpenConnections(OWN_DESCRIPTORS + 40), 15
    opened.count_own(lambda: own)
    assert opened.has_room(listener) is (listener is Listener.PLAIN)
    own = 0
    assert opened.has_room(listener)
