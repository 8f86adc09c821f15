"""Limits for each client address: connections, requests, bodies and scheduling in the event loop."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass

import pytest
from mitmproxy.test import tflow

from addons.requests.caller import Listener
from addons.server.limits import client_addresses
from addons.server.limits.client_addresses import (
    COMMON_HEAD,
    FAIR_UNREAD,
    HEAD_SHARE,
    MAX_BODIES,
    MAX_BODIES_OF_ADDRESS,
    MAX_CONNECTIONS,
    MAX_REQUEST_BODY,
    MAX_UNREAD,
    MAX_UNSENT,
    MAX_UNSENT_OF_ADDRESS,
    ClientAddress,
    ListenerClients,
    address_of,
)
from addons.server.limits.client_scheduler import ClientScheduler
from addons.server.limits.open_connections import OWN_DESCRIPTORS, OpenConnections
from addons.telemetry import metrics
from tests.addons.support.observed import until, value_of


@dataclass(eq=False)
class Served:
    """A stand-in for a connection."""

    held: int = 0
    count: int = 0
    weight: int = 0

    def bound_unread_soon(self) -> None:
        """Do nothing: the connection has no streams."""


def test_connections_of_one_address_to_one_port_share_their_limits() -> None:
    one, other, elsewhere = tflow.tclient_conn(), tflow.tclient_conn(), tflow.tclient_conn()
    elsewhere.sockname = ("127.0.0.1", 10268)
    found = address_of(one)
    assert address_of(other) is found
    assert address_of(elsewhere).listener is not found.listener


@pytest.mark.parametrize(
    ("head", "weight"), [(100, 1), (COMMON_HEAD + HEAD_SHARE - 1, 1), (COMMON_HEAD + 10 * HEAD_SHARE, 11)]
)
def test_requests_are_bounded_over_all_connections_by_their_heads(
    monkeypatch: pytest.MonkeyPatch, head: int, weight: int
) -> None:
    """4,000 requests with heads of 64 KB, waiting for their bodies, once took 256 MB."""
    monkeypatch.setattr(client_addresses, "MAX_REQUESTS", 3 * weight)
    address, layers = ClientAddress(ListenerClients()), [Served(), Served()]
    address.served.update(layers)
    for number in range(4):
        layers[number % 2].weight += address.begin_request(b"/", [(b"name", bytes(head - 5))])
        assert address.has_capacity is (number < 3)
    layers[0].weight = 0
    assert address.has_capacity


@pytest.mark.parametrize(
    ("mine", "others", "is_too_much"),
    [
        (FAIR_UNREAD, 2 * MAX_UNREAD, False),
        (FAIR_UNREAD + 1, MAX_UNREAD, False),
        (MAX_UNREAD, 2, True),
        (MAX_UNREAD // 2 + 1, MAX_UNREAD, True),
        (2 * FAIR_UNREAD, 0, False),
    ],
)
def test_an_address_beyond_its_share_of_the_memory_is_over_the_limit(
    mine: int, others: int, is_too_much: bool
) -> None:
    client, other = tflow.tclient_conn(), tflow.tclient_conn()
    client.peername, other.peername = ("10.0.0.1", 1), ("10.0.0.2", 1)
    layers = Served(mine), Served(others)
    addresses = address_of(client), address_of(other)
    for address, layer in zip(addresses, layers, strict=True):
        address.served.add(layer)
    assert addresses[0].exceeds_share is is_too_much


def test_bodies_waiting_for_servers_are_bounded_and_the_longest_is_aborted() -> None:
    class Upload:
        """A streamed request."""

        def __init__(self, address: ClientAddress) -> None:
            self.address = address
            self.is_over = False

        def holds(self, size: int) -> None:
            self.address.resize_unsent(self, size)

        def abort_upload(self) -> None:
            self.is_over = True
            self.address.resize_unsent(self, 0)

    client, other = tflow.tclient_conn(), tflow.tclient_conn()
    client.peername, other.peername = ("10.0.0.1", 1), ("10.0.0.2", 1)
    one, beside = address_of(client), address_of(other)
    small, long, longer = Upload(one), Upload(one), Upload(one)
    small.holds(1000)
    long.holds(MAX_UNSENT_OF_ADDRESS // 2 - 1000)
    longer.holds(MAX_UNSENT_OF_ADDRESS // 2)
    assert not any(each.is_over for each in (small, long, longer))
    small.holds(1001)
    assert [each.is_over for each in (small, long, longer)] == [False, False, True]
    assert one.unsent.size == MAX_UNSENT_OF_ADDRESS // 2 + 1
    elsewhere = Upload(beside)
    one.listener.unsent.size = MAX_UNSENT  # bytes of clients at other addresses
    elsewhere.holds(1)
    assert [each.is_over for each in (small, long, elsewhere)] == [False, True, False]
    for each in (small, long, longer, elsewhere):
        each.holds(0)
    assert (one.unsent.size, beside.unsent.size) == (0, 0)
    one.listener.unsent.size = 0


def filled(address: ClientAddress) -> int:
    """Return how many bodies of the maximum size an address may send."""
    count = 0
    while address.resize_body(0, MAX_REQUEST_BODY) is None:
        count += 1
    return count


def test_a_body_has_kube_apiservers_size_limit() -> None:
    address = ClientAddress(ListenerClients())
    assert address.resize_body(0, MAX_REQUEST_BODY) is None
    fault = address.resize_body(MAX_REQUEST_BODY, MAX_REQUEST_BODY + 1)
    assert fault is not None
    assert fault.code == 413
    assert address.bodies.size == MAX_REQUEST_BODY


def test_all_bodies_of_an_address_are_bounded_and_the_client_may_retry() -> None:
    address = ClientAddress(ListenerClients())
    assert filled(address) == MAX_BODIES_OF_ADDRESS // MAX_REQUEST_BODY
    fault = address.resize_body(0, MAX_REQUEST_BODY)
    assert fault is not None
    assert (fault.code, fault.retry_after) == (429, 1)
    assert address.resize_body(MAX_REQUEST_BODY, 0) is None, "a body that ends makes room"
    assert address.resize_body(0, MAX_REQUEST_BODY) is None


def test_buffered_bodies_of_pods_have_a_common_bound_that_excludes_kubelets() -> None:
    """The bodies of two pods once used up a listener's limit: every other client got 429."""
    of_pods = ListenerClients()
    pods = [ClientAddress(of_pods) for _ in range(10)]
    assert [filled(pod) for pod in pods] == [4, 2, 1, *[0] * 7]
    assert of_pods.bodies.size < MAX_BODIES
    assert pods[-1].resize_body(0, MAX_REQUEST_BODY // 4) is None
    assert filled(ClientAddress(ListenerClients())) == MAX_BODIES_OF_ADDRESS // MAX_REQUEST_BODY


def test_the_state_of_an_address_without_clients_is_removed() -> None:
    for number in range(1000):
        client = tflow.tclient_conn()
        client.peername = (f"10.0.{number // 250}.{number % 250}", 1)
        address_of(client).begin_request(b"/", ())
    del client
    assert not [each for each in client_addresses._addresses if each[1].startswith("10.0.")]


async def rounds(scheduler: ClientScheduler, *addresses: str) -> list[tuple[int, str]]:
    """Return in which iteration of the event loop, from 0 on, each of these clients proceeds if all ask at once."""
    gone: list[tuple[int, str]] = []
    now = 0
    for address in addresses:
        scheduler.schedule(address, lambda address=address: gone.append((now, address)))  # type: ignore[misc]  # as it is now
    while len(gone) < len(addresses):
        await asyncio.sleep(0)
        now += 1
    return gone


async def test_a_single_client_is_handled_in_each_iteration_of_the_loop() -> None:
    scheduler = ClientScheduler()
    assert [number for number, _ in await rounds(scheduler, *["pod"] * 4)] == [0, 0, 1, 2]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await rounds(scheduler, "pod") == [(0, "pod")]


async def test_an_address_with_many_connections_alternates_with_another() -> None:
    gone = await rounds(ClientScheduler(), *["many"] * 5, "one", "one")
    assert [address for _, address in gone] == ["many", "many", "one", "many", "one", "many", "many"]


async def test_a_failing_callback_does_not_stop_the_next() -> None:
    def fail() -> None:
        raise RuntimeError

    scheduler, gone = ClientScheduler(), list[str]()
    loop = asyncio.get_running_loop()
    failed: list[object] = []
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    scheduler.schedule("first", lambda: gone.append("first"))
    scheduler.schedule("fails", fail)
    scheduler.schedule("last", lambda: gone.append("last"))
    await until(lambda: len(gone) == 2)
    loop.set_exception_handler(None)
    assert (gone, len(failed)) == (["first", "last"], 1)


_ids = itertools.count()


def is_refused(opened: OpenConnections, address: ClientAddress, listener: Listener = Listener.TLS) -> bool:
    return bool(opened.opened(f"client {next(_ids)}", listener, address))


def address() -> ClientAddress:
    return ClientAddress(ListenerClients())


def test_connections_of_each_address_are_bounded_separately() -> None:
    many = 100_000
    opened, mine = OpenConnections(many), address()
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


def test_file_descriptors_are_reserved_for_the_plain_port() -> None:
    opened = OpenConnections(OWN_DESCRIPTORS + 40)
    # A quarter of 104 is reserved: 14 connections remain, of clients or to servers.
    assert sum(not is_refused(opened, address()) for _ in range(100)) == 14


@pytest.mark.parametrize("listener", list(Listener))
def test_file_descriptors_are_reserved_for_the_node_and_the_hub(listener: Listener) -> None:
    opened, own = OpenConnections(OWN_DESCRIPTORS + 40), 15
    opened.count_own(lambda: own)
    assert opened.has_capacity(listener) is (listener is Listener.PLAIN)
    own = 0
    assert opened.has_capacity(listener)
