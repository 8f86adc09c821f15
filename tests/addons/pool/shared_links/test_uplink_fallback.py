"""Borrowing another node's link: when, from which node, and the return to the node's own uplink."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from addons.link.failback import FAILBACK_DELAY
from addons.link.health import Cloud, Condition, ServerHealth
from addons.link.probes import Probes
from addons.link.servers import Lender, parse_server
from addons.link.uplinks.uplink import parse_uplinks
from addons.pool.shared_links.uplink_fallback import (
    CONCURRENT_LENDERS,
    RETRY,
    TRY,
    UplinkFallback,
    lenders_to_ask,
)
from kube.http.client import Client, RawResponse, Unreachable


def lender(node: str) -> Lender:
    return Lender("https", f"10.0.0.{ord(node)}", 10269, node=node)


A, B, C, D = map(lender, "abcd")


class Node:
    """A node with two servers, and a clock that tests set."""

    def __init__(self, *lenders: Lender, scheme: str = "https") -> None:
        self.now = 1000.0
        self.lenders: Sequence[Lender] = lenders
        self.own = [ServerHealth(parse_server(f"{scheme}://10.1.0.{each}:6443")) for each in (1, 2)]
        self.cloud = Cloud(self.own, "priority")
        self.fallback = UplinkFallback(self.cloud, self._borrow, lambda: self.lenders, lambda: self.now)

    def _borrow(self, paths: tuple[ServerHealth, ...]) -> None:
        self.cloud.borrowed = paths

    def lose(self) -> None:
        for each in self.own:
            each.failed("refused")

    def come_back(self) -> None:
        self.own[1].succeeded()
        self.own[1].succeeded()

    def step(self, after: float = 0.0) -> float | None:
        self.now += after
        return self.fallback.step(self.now)

    def asked(self) -> list[str]:
        found = (each.server.lender for each in self.cloud.borrowed)
        return sorted({each.node for each in found if each is not None})

    def answers(self, node: Lender, *, up: bool = True) -> None:
        for each in self.cloud.borrowed:
            if each.server.lender == node:
                _ = each.succeeded() if up else each.failed("refused")

    def borrows(self) -> str:
        return self.cloud.lender


def test_no_uplink_is_borrowed_while_an_own_one_is_up() -> None:
    node = Node(A)
    assert node.step() is None
    node.own[0].failed("refused")
    assert node.step() is None
    assert node.asked() == []


def test_the_first_lender_that_reaches_the_cloud_is_used_and_the_rest_released() -> None:
    node = Node(A, B)
    node.lose()
    assert node.step() == TRY
    assert node.asked() == ["a", "b"]
    assert not node.cloud.is_up, "no way is used before it has answered"
    node.answers(B)
    assert node.step(0.1) is None
    assert (node.borrows(), node.asked(), node.cloud.is_up) == ("b", ["b"], True)
    chosen = node.cloud.choose()
    assert chosen is not None
    assert (chosen.url, str(chosen)) == ("https://10.1.0.1:6443", "https://10.1.0.1:6443 via b")


def test_failed_lenders_are_retried_after_untried_ones() -> None:
    node = Node(A, B, C, D)
    node.lose()
    node.step()
    assert node.asked() == ["a", "b", "c"]
    for each in (A, B, C):
        node.answers(each, up=False)
    wait = node.step(0.1)
    assert node.asked() == []
    assert wait is not None
    assert RETRY <= wait <= 2 * RETRY
    node.step(wait)
    assert node.asked() == ["a", "b", "d"]


def test_a_silent_lender_is_released() -> None:
    node = Node(A)
    node.lose()
    node.step()
    assert node.step(TRY - 1) == 1.0
    node.step(1.0)
    assert node.asked() == []


def test_after_a_failed_lender_the_next_is_asked_at_once() -> None:
    node = Node(A, B)
    node.lose()
    node.step()
    node.answers(A)
    node.step()
    node.answers(A, up=False)
    assert node.step(60.0) == TRY
    assert node.asked() == ["a", "b"]


def test_the_own_uplink_is_used_again_once_it_has_been_up_for_the_hold_time() -> None:
    node = Node(A)
    node.lose()
    node.step()
    node.answers(A)
    node.step()
    node.come_back()
    assert node.step(60.0) == FAILBACK_DELAY
    assert node.borrows() == "a"
    node.own[1].failed("refused")
    assert node.step(FAILBACK_DELAY - 1) is None, "it counts from the beginning when it is lost meanwhile"
    node.come_back()
    assert node.step(2.0) == FAILBACK_DELAY
    assert node.step(FAILBACK_DELAY) is None
    assert (node.borrows(), node.asked()) == ("", [])


def test_the_own_uplink_is_used_at_once_if_no_borrowed_one_works() -> None:
    node = Node(A)
    node.lose()
    node.step()
    node.come_back()
    assert node.step() is None
    assert node.asked() == []
    node.lose()
    node.step()
    node.answers(A)
    node.step()
    node.come_back()
    node.step()
    node.answers(A, up=False)
    assert node.step() is None
    assert node.asked() == []


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_an_unencrypted_server_is_not_reached_by_a_borrowed_uplink(scheme: str) -> None:
    node = Node(A, scheme=scheme)
    node.lose()
    node.step()
    assert node.asked() == (["a"] if scheme == "https" else [])


def test_a_node_without_known_lenders_looks_for_them_again() -> None:
    node = Node()
    node.lose()
    assert node.step() == RETRY
    node.lenders = [A]
    node.step(RETRY)
    assert node.asked() == ["a"]


def test_a_borrowed_uplink_is_recovering_until_its_first_probe() -> None:
    node = Node(A)
    node.lose()
    node.step()
    assert {each.condition for each in node.cloud.borrowed} == {Condition.RECOVERING}
    assert not node.cloud.is_reachable


@pytest.mark.parametrize(
    ("known", "failed", "asked"),
    [
        ([A, B], {}, [A, B]),
        ([A, B, C, D], {}, [A, B, C]),
        ([A, B, C, D], {A: 5.0}, [B, C, D]),
        ([A, B, C, D], {A: 5.0, B: 3.0, C: 9.0}, [D, B, A]),
    ],
)
def test_untried_lenders_are_asked_first_and_then_the_earliest_failed(
    known: list[Lender], failed: dict[Lender, float], asked: list[Lender]
) -> None:
    assert lenders_to_ask(known, failed) == asked
    assert len(asked) <= CONCURRENT_LENDERS


class BlackHole:
    """A node whose own link may drop everything, and a lender's link; RTT is the round trip of both."""

    RTT = 0.05

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.own, self.is_silent = ServerHealth(parse_server("https://c:6443")), False
        self.cloud = Cloud([self.own], "priority")
        self.probes = Probes(self.cloud, lambda _: 0, lambda _: None, self.loop.time)
        self.fallback = UplinkFallback(self.cloud, self._borrow, lambda: [A], self.loop.time)

    def _borrow(self, paths: tuple[ServerHealth, ...]) -> None:
        begun = [each for each in paths if self.cloud.find(str(each.server)) is None]
        self.cloud.borrowed = paths
        for each in begun:
            self.probes.begin(each)

    def at(self, server: str) -> SimpleNamespace:
        return SimpleNamespace(relay=partial(self._relay, server))

    async def _relay(self, server: str, *_: str, **_how: object) -> RawResponse:
        health = self.cloud.find(server)
        assert health is not None
        await self.ask(health)
        return RawResponse(200, {}, b"ok")

    async def ask(self, health: ServerHealth) -> None:
        """Return when the server has responded; raise Unreachable if its connections are cut before."""
        health.note_request(self.loop.time())
        await asyncio.sleep(self.RTT)
        while health is self.own and self.is_silent:
            await asyncio.sleep(self.RTT)
            if not health.usable:
                raise Unreachable("the connection was cut")
        health.last_received = self.loop.time()

    async def renew(self) -> float:
        """Renew a lease, with retries; return the seconds that it took."""
        began = self.loop.time()
        while True:
            path = next((each for each in self.cloud.paths if each.usable), None)
            if path is None:
                await self.cloud.changed.wait()
                continue
            with contextlib.suppress(Unreachable):
                await self.ask(path)
                return self.loop.time() - began


@pytest.mark.looptime
@pytest.mark.parametrize("each", [0.25, 2.4, 10.0])
async def test_a_lease_renewal_takes_less_than_six_seconds_in_a_black_hole(each: float) -> None:
    """The silent server does not answer the renewal, and the hub sends it again over the borrowed link."""
    node = BlackHole()
    node.probes.start(cast(Client, node))
    running = asyncio.create_task(node.fallback.run(node.probes.probed))
    longest = 0.0
    for number in range(40):
        node.is_silent = number >= 20
        longest = max(longest, await node.renew())
        await asyncio.sleep(each)
    assert node.cloud.lender == "a"
    assert longest < 5.0
    running.cancel()
    node.probes.close()


def test_a_lender_is_probed_once_for_all_uplinks_of_the_node() -> None:
    node = Node(A)
    node.cloud = Cloud.for_servers(
        [each.server for each in node.own], parse_uplinks("", "wan1,wan2"), "priority"
    )
    node.fallback = UplinkFallback(node.cloud, node._borrow, lambda: node.lenders, lambda: node.now)
    for each in node.cloud.servers[:2]:
        each.failed("refused")
    node.step()
    assert node.asked() == [], "the other uplink leads there"
    for each in node.cloud.servers[2:]:
        each.failed("refused")
    node.step()
    found = [str(each.server) for each in node.cloud.borrowed]
    assert found == ["https://10.1.0.1:6443 via a", "https://10.1.0.2:6443 via a"]
