"""What one client address may hold: connections, requests, bodies and turns."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

import pytest
from hyperframe.frame import DataFrame, Frame, HeadersFrame, PingFrame
from mitmproxy.test import tflow

from addons.requests.caller import Listener
from addons.requests.exchange import client_addresses
from addons.requests.exchange.client_addresses import (
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
from addons.requests.exchange.client_turns import AT_ONCE, PREFACE, ClientTurns, Frames
from addons.requests.exchange.open_connections import OWN_DESCRIPTORS, OpenConnections
from addons.telemetry import metrics
from tests.addons.support.observed import value_of


@dataclass(eq=False)
class Layer:
    """Stands for the layer of one connection."""

    held: int = 0
    streams: dict[int, object] = field(default_factory=dict)
    weight: int = 0

    def end_least_read(self) -> None:
        """Nothing is there."""


def test_connections_of_one_address_and_port_belong_together() -> None:
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
    """4,000 requests with heads of 64 KB, which wait for the end of their bodies, held 256 MB."""
    monkeypatch.setattr(client_addresses, "MAX_REQUESTS", 3 * weight)
    address, layers = ClientAddress(ListenerClients()), [Layer(), Layer()]
    address.layers.update(layers)
    for number in range(4):
        layers[number % 2].weight += address.begin_request(b"/", [(b"name", bytes(head - 5))])
        assert address.has_room is (number < 3)
    layers[0].weight = 0
    assert address.has_room


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
def test_an_address_that_holds_more_than_its_share_holds_too_much(
    mine: int, others: int, is_too_much: bool
) -> None:
    client, other = tflow.tclient_conn(), tflow.tclient_conn()
    client.peername, other.peername = ("10.0.0.1", 1), ("10.0.0.2", 1)
    layers = Layer(mine), Layer(others)
    addresses = address_of(client), address_of(other)
    for address, layer in zip(addresses, layers, strict=True):
        address.layers.add(layer)
    assert addresses[0].leaves_too_much is is_too_much


class Upload:
    """A streamed request."""

    def __init__(self, address: ClientAddress) -> None:
        self.address = address
        self.is_over = False

    def holds(self, size: int) -> None:
        self.address.hold_unsent(self, size)

    def give_up(self) -> None:
        self.is_over = True
        self.address.hold_unsent(self, 0)


def test_the_bodies_that_wait_for_servers_are_bounded_and_the_longest_ends() -> None:
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
    one.listener.unsent.size = MAX_UNSENT  # as by clients at other addresses
    elsewhere.holds(1)
    assert [each.is_over for each in (small, long, elsewhere)] == [False, True, False]
    for each in (small, long, longer, elsewhere):
        each.holds(0)
    assert (one.unsent.size, beside.unsent.size) == (0, 0)
    one.listener.unsent.size = 0


def filled(address: ClientAddress) -> int:
    """How many of the largest bodies an address may have."""
    count = 0
    while address.resize_body(0, MAX_REQUEST_BODY) is None:
        count += 1
    return count


def test_one_body_is_at_most_what_kube_apiserver_takes() -> None:
    address = ClientAddress(ListenerClients())
    assert address.resize_body(0, MAX_REQUEST_BODY) is None
    fault = address.resize_body(MAX_REQUEST_BODY, MAX_REQUEST_BODY + 1)
    assert fault is not None
    assert fault.code == 413
    assert address.bodies.size == MAX_REQUEST_BODY


def test_all_bodies_of_an_address_have_a_bound_and_the_client_may_come_again() -> None:
    address = ClientAddress(ListenerClients())
    assert filled(address) == MAX_BODIES_OF_ADDRESS // MAX_REQUEST_BODY
    fault = address.resize_body(0, MAX_REQUEST_BODY)
    assert fault is not None
    assert (fault.code, fault.retry_after) == (429, 1)
    assert address.resize_body(MAX_REQUEST_BODY, 0) is None, "a body that ends makes room"
    assert address.resize_body(0, MAX_REQUEST_BODY) is None


def test_pods_leave_as_much_to_others_as_they_take_and_take_nothing_from_kubelet() -> None:
    """The bodies of two pods were all that a listener may hold: every other client got 429."""
    of_pods = ListenerClients()
    pods = [ClientAddress(of_pods) for _ in range(10)]
    assert [filled(pod) for pod in pods] == [4, 2, 1, *[0] * 7]
    assert of_pods.bodies.size < MAX_BODIES
    assert pods[-1].resize_body(0, MAX_REQUEST_BODY // 4) is None
    assert filled(ClientAddress(ListenerClients())) == MAX_BODIES_OF_ADDRESS // MAX_REQUEST_BODY


def test_an_address_without_clients_is_forgotten() -> None:
    for number in range(1000):
        client = tflow.tclient_conn()
        client.peername = (f"10.0.{number // 250}.{number % 250}", 1)
        address_of(client).begin_request(b"/", ())
    del client
    assert not [each for each in client_addresses._addresses if each[1].startswith("10.0.")]


BEGIN = bytes(PREFACE)


def heads(count: int) -> bytes:
    return b"".join(HeadersFrame(2 * number + 1, b"x").serialize() for number in range(count))


def pieces(*data: bytes) -> list[bytes]:
    """What is handed out, one go after another, when data comes in such pieces."""
    frames, found = Frames(), []
    for each in data:
        frames.add(each)
        found.append(frames.take())
        while frames.has_more:
            found.append(frames.take())
    return found


def test_a_few_requests_are_handed_out_at_once() -> None:
    found = pieces(BEGIN + heads(2 * AT_ONCE + 1))
    assert found == [BEGIN + heads(AT_ONCE), *_rest(AT_ONCE), heads(2 * AT_ONCE + 1)[-10:]]


def _rest(count: int) -> list[bytes]:
    size = len(heads(count))
    return [heads(2 * count)[size:]]


@pytest.mark.parametrize("size", [1, 7, 10, 24, 100, 100_000])
@pytest.mark.parametrize(
    "frames",
    [
        [HeadersFrame(1, b"x" * 50), DataFrame(1, b"y" * 16_000), DataFrame(1, b"y" * 300)],
        [PingFrame(0, b"x" * 8)] * 300,
        [
            each
            for number in range(1, 200, 2)
            for each in (HeadersFrame(number, b"x"), DataFrame(number, b""))
        ],
    ],
    ids=["a body", "pings", "requests"],
)
def test_all_is_handed_out_in_order(frames: list[Frame], size: int) -> None:
    sent = BEGIN + b"".join(each.serialize() for each in frames)
    assert b"".join(pieces(*(sent[at : at + size] for at in range(0, len(sent), size)))) == sent


def test_a_body_is_handed_out_as_it_comes() -> None:
    body = DataFrame(1, b"y" * 100_000).serialize()
    assert pieces(BEGIN + body[:40_000], body[40_000:]) == [BEGIN + body[:40_000], body[40_000:]]


async def rounds(turns: ClientTurns, *addresses: str) -> list[tuple[int, str]]:
    """In which round of the event loop, from 0 on, each of these clients goes on that ask at once."""
    gone: list[tuple[int, str]] = []
    counted = itertools.count()

    async def ask(address: str) -> None:
        await turns.next(address)
        gone.append((now, address))

    asked = [asyncio.create_task(ask(address)) for address in addresses]
    while len(gone) < len(asked):
        now = next(counted)
        await asyncio.sleep(0)
    return gone


async def test_one_client_goes_on_in_each_round_of_the_loop() -> None:
    turns = ClientTurns()
    assert [number for number, _ in await rounds(turns, *["pod"] * 4)] == [0, 2, 3, 4]
    await asyncio.sleep(0)
    assert await rounds(turns, "pod") == [(0, "pod")]


async def test_an_address_with_many_connections_leaves_every_second_turn_to_another() -> None:
    gone = await rounds(ClientTurns(), *["many"] * 5, "one", "one")
    assert [address for _, address in gone] == ["many", "many", "one", "many", "one", "many", "many"]


async def test_a_client_that_leaves_while_it_waits_takes_no_turn() -> None:
    turns = ClientTurns()
    await turns.next("first")
    left = asyncio.create_task(turns.next("left"))
    stays = asyncio.create_task(turns.next("stays"))
    await asyncio.sleep(0)
    left.cancel()
    async with asyncio.timeout(10):
        await stays


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
