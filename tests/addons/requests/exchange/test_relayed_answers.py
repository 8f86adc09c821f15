"""A request and its server's answer, between a connection and a client: what each is told, and when it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from addons.requests.exchange import client_addresses
from addons.requests.exchange.client_side import SWITCHED
from addons.requests.exchange.relayed_answers import RelayedAnswer
from addons.telemetry import metrics
from kube.errors import bad_request
from kube.http.transport.connection_pool import Connection
from kube.http.transport.response_sink import NotProcessed, ResponseSink
from tests.addons.support.client_side import NotedClient
from tests.addons.support.observed import value_of


class Server:
    """A connection to a server, which notes what it is asked, and the connections of one identity."""

    scheme, host, port = "https", "cloud", 6443

    def __init__(self) -> None:
        self.did: list[tuple[object, ...]] = []
        self.is_kept = True
        self.refuses: Exception | None = None
        self.opens = asyncio.Event()
        self.waiting = 0

    def kept(self) -> Connection | None:
        return self._connection if self.is_kept else None

    async def opened(self) -> Connection:
        await self.opens.wait()
        if self.refuses is not None:
            raise self.refuses
        return self._connection

    @property
    def _connection(self) -> Connection:
        made: Any = self
        return made  # type: ignore[no-any-return]  # it has what a relayed answer calls

    def send(self, fields: object, body: bytes, _response: ResponseSink, *, is_whole: bool) -> None:
        if isinstance(self.refuses, Exception):
            raise self.refuses
        self.did.append(("send", body, is_whole))

    def send_more(self, _response: ResponseSink, data: bytes, *, is_last: bool) -> None:
        self.did.append(("more", data, is_last))

    def unsent(self, _response: ResponseSink) -> int:
        return self.waiting

    def take(self, _response: ResponseSink, size: int) -> None:
        self.did.append(("take", size))

    def release(self, _response: ResponseSink) -> None:
        self.did.append(("release",))


class Relay:
    """A relayed answer with both its sides."""

    def __init__(self, *, is_body_streamed: bool = False) -> None:
        self.client, self.server, self.ends = NotedClient(), Server(), 0
        self.client.is_body_streamed = is_body_streamed
        assert self.client.context is not None
        self.client.context.upstream = self.server
        self.answer = RelayedAnswer(self.client, self.client.context, self._over)

    def _over(self) -> None:
        self.ends += 1

    async def says(self, *parts: Callable[[RelayedAnswer], None]) -> None:
        """Have the server say so much at once."""
        for part in parts:
            part(self.answer)
        self.answer.settle()
        await asyncio.sleep(0)

    def ask(self, body: bytes = b"body") -> None:
        self.answer.open(has_body=bool(body))
        if body:
            self.answer.write(body)
        self.answer.close()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def begins(status: int = 200) -> Callable[[RelayedAnswer], None]:
    return lambda answer: answer.begin(status, [])


def adds(piece: bytes) -> Callable[[RelayedAnswer], None]:
    return lambda answer: answer.add(piece, len(piece))


def ends(answer: RelayedAnswer) -> None:
    answer.end()


def fails(error: ConnectionResetError) -> Callable[[RelayedAnswer], None]:
    return lambda answer: answer.fail(error)


async def test_a_held_body_goes_out_in_whole_and_an_answer_is_played_as_it_comes() -> None:
    relay = Relay()
    relay.answer.open(has_body=True)
    relay.answer.write(b"bo")
    relay.answer.write(b"dy")
    assert relay.server.did == []
    relay.answer.close()
    assert relay.server.did == [("send", b"body", True)]
    assert relay.client.went_by is relay.server  # type: ignore[comparison-overlap]  # it stands for a connection
    await relay.says(begins(), adds(b"half"))
    await relay.says(adds(b"more"), ends)
    assert relay.client.plays == [
        [("head", 200, True), ("data", b"half")],
        [("data", b"more"), ("end",)],
    ]
    assert (relay.server.did[1:], relay.ends) == ([("take", 4), ("release",)], 1)


async def test_a_streamed_body_goes_out_as_it_comes_and_counts_until_the_server_has_room() -> None:
    relay = Relay(is_body_streamed=True)
    relay.answer.open(has_body=True)
    relay.server.waiting = 3
    relay.answer.write(b"one")
    assert relay.client.address.unsent.size == 3
    relay.server.waiting = 0
    await relay.says()
    assert relay.client.address.unsent.size == 0
    relay.answer.close()
    assert relay.server.did == [("send", b"", False), ("more", b"one", False), ("more", b"", True)]


@pytest.mark.parametrize("has_begun", [False, True])
async def test_the_longest_body_that_waits_is_given_up(
    monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    monkeypatch.setattr(client_addresses, "MAX_UNSENT_OF_ADDRESS", 10)
    relay, refused = Relay(is_body_streamed=True), value_of(metrics.REQUESTS_REFUSED.labels("429"))
    relay.answer.open(has_body=True)
    if has_begun:
        await relay.says(begins())
    relay.server.waiting = 11
    relay.answer.write(b"x")
    await asyncio.sleep(0)
    assert value_of(metrics.REQUESTS_REFUSED.labels("429")) == refused + 1
    assert relay.client.address.unsent.size == 0
    last = relay.client.told[-1]
    assert last[0] == ("broken off" if has_begun else "end")
    assert has_begun or relay.client.told[0][1] == 429
    assert relay.server.did[-1] == ("release",)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ConnectionRefusedError("connection refused"), "connection refused"),
        (TimeoutError(), "TimeoutError"),
        (RuntimeError("secret"), "the hub could not open a connection"),
    ],
)
async def test_a_connection_that_cannot_be_opened_breaks_the_answer_off(error: Exception, why: str) -> None:
    relay = Relay()
    relay.server.is_kept, relay.server.refuses = False, error
    relay.ask()
    relay.server.opens.set()
    await turns()
    assert relay.client.plays == [[("broken off", why, False)]]
    assert relay.ends == 1


async def test_a_client_that_leaves_while_a_connection_opens_sends_nothing() -> None:
    relay = Relay()
    relay.server.is_kept = False
    relay.ask()
    await asyncio.sleep(0)
    relay.answer.cancel()
    relay.server.opens.set()
    await asyncio.sleep(0)
    assert (relay.server.did, relay.client.plays, relay.ends) == ([], [], 1)


async def test_a_head_that_cannot_be_sent_is_the_clients_fault() -> None:
    relay = Relay()
    relay.server.refuses = bad_request("no")
    relay.ask()
    await asyncio.sleep(0)
    assert relay.client.plays == [[("broken off", "no", True)]]


@pytest.mark.parametrize(
    ("kept", "has_begun", "is_sent_again"),
    [(b"body", False, True), (None, False, False), (b"body", True, False)],
)
async def test_what_a_server_did_not_process_is_sent_again_where_the_body_is_kept(
    kept: bytes | None, has_begun: bool, is_sent_again: bool
) -> None:
    relay, resent = Relay(), value_of(metrics.REQUESTS_RESENT)
    relay.client.kept_body = kept
    relay.ask()
    if has_begun:
        await relay.says(begins())
    await relay.says(fails(NotProcessed("refused")))
    sends = [done for done in relay.server.did if done[0] == "send"]
    assert sends == [("send", b"body", True)] * (2 if is_sent_again else 1)
    assert (relay.client.told[-1:] == [("broken off", "refused", False)]) is not is_sent_again
    assert value_of(metrics.REQUESTS_RESENT) == resent + is_sent_again


async def test_a_server_waits_for_a_client_that_does_not_read() -> None:
    relay = Relay()
    relay.ask(b"")
    relay.client.reads.clear()
    await relay.says(begins(), adds(b"one"))
    await relay.says(adds(b"three"))
    assert ("take", 8) not in relay.server.did
    relay.client.reads.set()
    await turns()
    assert relay.server.did[-1] == ("take", 8)


async def test_a_server_is_told_when_the_hub_has_answered_in_its_place() -> None:
    relay = Relay()
    relay.ask()
    relay.client.is_over = True
    await relay.says(begins(), adds(b"late"))
    assert (relay.server.did[-1], relay.ends) == (("release",), 1)


async def test_after_a_switch_both_sides_speak_until_one_ends() -> None:
    relay = Relay()
    relay.ask(b"")
    await relay.says(begins(SWITCHED))
    relay.client.is_over = True  # as the layers have it once the head has been sent
    relay.answer.write(b"up")
    await relay.says(adds(b"down"))
    assert relay.client.plays == [[("head", SWITCHED, True), ("end",)], [("data", b"down")]]
    assert ("more", b"up", False) in relay.server.did
    assert relay.ends == 0
    await relay.says(ends)
    assert relay.ends == 1


async def test_an_answer_may_be_broken_off_once() -> None:
    relay = Relay()
    relay.ask()
    await relay.says(begins())
    relay.answer.break_off("the rules have changed")
    relay.answer.break_off("again")
    await asyncio.sleep(0)
    assert relay.client.told[-1] == ("broken off", "the rules have changed", False)
    assert relay.ends == 1
