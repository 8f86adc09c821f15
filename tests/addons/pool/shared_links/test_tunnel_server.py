"""The tunnel server lends this node's link: permitted borrowers and targets, and the number of tunnels."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from addons.link.health import Cloud, ServerHealth
from addons.link.servers import Lender, parse_server
from addons.pool.peer_admission import Admission
from addons.pool.shared_links.tunnel_server import (
    BORROWER_DELAY,
    BORROWER_DIVISOR,
    MAX_TUNNELS,
    MAX_TUNNELS_OF_NODE,
    LentRates,
    TunnelServer,
)
from addons.telemetry import metrics
from kube.errors import StatusError, forbidden
from tests.addons.support.observed import value_of

RATE = 1000
"""Kilobytes per second."""
SECOND = 1_000_000
"""Bytes that the rate allows in one second."""


class FakeAdmission:
    """An `Admission` that identifies a connection by its node and a number."""

    def admit(self, connection: str, _headers: object, _address: str) -> str:
        node = connection.partition(" ")[0]
        if node == "stranger":
            raise forbidden("not in this pool")
        return node


class LendingHub:
    """A lending hub with two servers, one of them without TLS."""

    def __init__(self, *, is_on: bool = True) -> None:
        self.own = [ServerHealth(parse_server(each)) for each in ("https://cloud:6443", "http://plain:80")]
        self.cloud = Cloud(self.own, "priority")
        self.closed: list[str] = []
        self.now = 0.0
        self.lent = TunnelServer(
            self.cloud,
            cast(Admission, FakeAdmission()),
            1000,
            self.closed.append,
            is_on=is_on,
            clock=lambda: self.now,
        )
        self.lent.is_open = True

    def ask(self, connection: str = "n2 1", host: str = "cloud", port: int = 6443) -> str:
        return str(self.lent.lend(connection, (), "10.0.0.2", host, port))

    def refusal(self, connection: str = "n2 1", host: str = "cloud", port: int = 6443) -> tuple[int, str]:
        with pytest.raises(StatusError) as refused:
            self.ask(connection, host, port)
        return refused.value.code, refused.value.message


def test_a_node_of_the_pool_gets_a_tunnel_to_a_server_of_the_hub() -> None:
    harbour = LendingHub()
    assert harbour.ask() == "https://cloud:6443"
    assert harbour.lent.tunnels() == {"n2": 1}
    harbour.lent.ended("n2 1")
    harbour.lent.ended("n2 1")
    assert harbour.lent.tunnels() == {}


@pytest.mark.parametrize(
    ("host", "port"),
    [("cloud", 22), ("169.254.169.254", 80), ("cloud.evil", 6443), ("127.0.0.1", 10261), ("plain", 80)],
)
def test_a_tunnel_to_another_target_is_refused(host: str, port: int) -> None:
    harbour = LendingHub()
    before = value_of(metrics.PEER_REFUSED.labels("target"))
    assert harbour.refusal(host=host, port=port)[0] == 403
    assert value_of(metrics.PEER_REFUSED.labels("target")) == before + 1
    assert harbour.lent.tunnels() == {}


def test_a_node_outside_the_pool_gets_no_tunnel() -> None:
    assert LendingHub().refusal("stranger 1") == (403, "not in this pool")


def test_a_hub_with_lending_off_refuses_tunnels() -> None:
    harbour = LendingHub(is_on=False)
    assert not harbour.lent.has_path
    assert harbour.refusal()[0] == 403


def test_a_borrowed_uplink_is_not_lent() -> None:
    harbour = LendingHub()
    for each in harbour.own:
        each.failed("refused")
    lender = Lender("https", "10.0.0.3", 10269, node="n3")
    borrowed = ServerHealth(parse_server("https://cloud:6443"))
    borrowed.server = type(borrowed.server)("https", "cloud", 6443, lender=lender)
    harbour.cloud.borrowed = (borrowed,)
    assert harbour.cloud.is_up
    assert not harbour.lent.has_path
    assert harbour.refusal()[0] == 503


def test_tunnels_are_bounded_per_borrower_and_in_total() -> None:
    harbour = LendingHub()
    for number in range(MAX_TUNNELS_OF_NODE):
        harbour.ask(f"greedy {number}")
    assert harbour.refusal("greedy more")[0] == 429
    assert harbour.ask("n2 1")
    for number in range(MAX_TUNNELS - MAX_TUNNELS_OF_NODE - 1):
        harbour.ask(f"n{number + 10} 1")
    assert harbour.refusal("n3 1")[0] == 429
    harbour.lent.ended("greedy 0")
    assert harbour.ask("n3 1")


def test_tunnels_of_a_node_that_leaves_the_pool_end() -> None:
    harbour = LendingHub()
    harbour.ask("n2 1")
    harbour.ask("n3 1")
    harbour.lent.keep_only(lambda node: node == "n3")
    assert harbour.closed == ["n2 1"]


def test_tunnels_to_a_server_that_went_down_end() -> None:
    harbour = LendingHub()
    harbour.ask("n2 1")
    cloud, plain = (each.server for each in harbour.own)
    assert harbour.lent.cut(cloud) == 0, "its borrower hears why it cannot be opened"
    harbour.lent.opened("n2 1")
    assert (harbour.lent.cut(plain), harbour.lent.cut(cloud)) == (0, 1)
    assert harbour.closed == ["n2 1"]


async def test_bytes_of_a_tunnel_are_counted_and_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(round(seconds, 3))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    harbour = LendingHub()
    harbour.lent.own(1_000_000)  # no borrower has a tunnel yet
    harbour.ask("n2 1")
    before = value_of(metrics.LENT_BYTES.labels("up", "n2"))
    await harbour.lent.pace("n2 1", "up", 100_000)
    harbour.lent.own(500_000)
    await harbour.lent.pace("n2 1", "down", 100_000)
    await harbour.lent.pace("gone", "down", 100_000)
    assert waited == [0.2, 0.7]
    assert value_of(metrics.LENT_BYTES.labels("up", "n2")) == before + 100_000


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_a_borrower_gets_a_share_of_the_lent_rate() -> None:
    shares = LentRates(RATE, Clock())
    assert shares.wait("a", SECOND // 2) == 0.5 * BORROWER_DIVISOR
    assert shares.wait("a", SECOND // 2) == 1.0 * BORROWER_DIVISOR, "the next piece waits behind the first"


def test_all_borrowers_together_are_limited_to_the_rate() -> None:
    shares = LentRates(RATE, Clock())
    waits = [shares.wait(each, SECOND) for each in "abcd"]
    assert waits == [2.0, 2.0, 3.0, 4.0]


def test_an_idle_borrower_accumulates_no_credit() -> None:
    clock = Clock()
    shares = LentRates(RATE, clock)
    shares.wait("a", SECOND)
    clock.now += 100.0
    assert shares.wait("a", SECOND // 2) == 1.0


def test_traffic_of_the_lender_delays_a_borrower_by_a_bounded_time() -> None:
    shares = LentRates(RATE, Clock())
    shares.own(SECOND // 2)
    assert round(shares.wait("a", SECOND // 10), 6) == 0.6
    shares.own(100 * SECOND)
    assert round(shares.wait("b", SECOND // 10), 6) == BORROWER_DELAY + 0.1, (
        "a borrower waits a second, whatever passes"
    )


def test_the_debt_of_a_borrower_that_left_is_dropped() -> None:
    clock = Clock()
    shares = LentRates(RATE, clock)
    shares.wait("a", 10 * SECOND)
    shares.forget("a")
    clock.now += 10.0
    assert shares.wait("a", SECOND // 2) == 1.0
