"""The origin takes one request for each ticket, and none without a ticket."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import zstandard
from aiohttp import web

from addons.proxy.http.request_head import MAX_HEADERS, MAX_TARGET
from addons.requests.headers import TICKET_HEADER
from addons.views.origin import CLIENT_LEFT, Answer, Origin
from kube.errors import forbidden, unavailable


class StubServing:
    """Answers each ticket with the text that the ticket was made for, or raises."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.answered: list[str] = []

    def of(self, text: str = "someone") -> Answer:
        async def answer(_request: web.BaseRequest) -> web.StreamResponse:
            self.answered.append(text)
            if self.error is not None:
                raise self.error
            return web.Response(text=text)

        return answer


class Door:
    """An origin that serves, and a client of it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.serving = StubServing()
        self.origin = Origin()
        self._session = session

    async def knock(self, ticket: str | None) -> tuple[int, str, Any]:
        headers = {} if ticket is None else {TICKET_HEADER: ticket}
        host, port = self.origin.address
        async with self._session.get(f"http://{host}:{port}/any", headers=headers) as response:
            return response.status, await response.text(), response.headers


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with aiohttp.ClientSession() as session:
        made = Door(session)
        await made.origin.start()
        yield made
    runner = made.origin._runner  # the process' end closes it elsewhere
    assert runner is not None
    await runner.cleanup()
    made.origin.close()


async def test_a_ticket_lets_its_request_in(door: Door) -> None:
    one, other = door.serving.of("one"), door.serving.of("other")
    tickets = door.origin.ticket(one), door.origin.ticket(other)
    assert (await door.knock(tickets[1]))[:2] == (200, "other")
    assert (await door.knock(tickets[0]))[:2] == (200, "one")
    assert door.serving.answered == ["other", "one"]


async def test_each_ticket_is_good_once(door: Door) -> None:
    ticket = door.origin.ticket(door.serving.of())
    assert (await door.knock(ticket))[0] == 200
    assert (await door.knock(ticket))[0] == 403


async def test_a_ticket_that_is_given_back_is_good_no_more(door: Door) -> None:
    ticket = door.origin.ticket(door.serving.of())
    door.origin.void(ticket)
    door.origin.void(ticket)
    assert (await door.knock(ticket))[0] == 403
    assert not door.serving.answered


@pytest.mark.parametrize("ticket", [None, "", "guess", "-0", "0"])
async def test_nobody_else_is_let_in(door: Door, ticket: str | None) -> None:
    door.origin.ticket(door.serving.of())
    assert (await door.knock(ticket))[0] == 403
    assert not door.serving.answered


async def test_a_ticket_cannot_be_made_from_another(door: Door) -> None:
    known = door.origin.ticket(door.serving.of())
    secret, _, number = known.rpartition("-")
    assert len(secret) >= 32
    assert (await door.knock(f"{secret}-{int(number) + 1}"))[0] == 403


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(bytes(2**24))),
        ("deflate", zlib.compress(bytes(2**24))),
        ("zstd", zstandard.compress(bytes(2**24))),
    ],
    ids=["gzip", "deflate", "zstd"],
)
async def test_a_packed_body_stays_packed(door: Door, coding: str, body: bytes) -> None:
    """Unpacked it may be a thousand times as long."""
    came: list[bytes] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        came.append(await request.content.read())
        return web.Response(text=request.headers["Content-Encoding"])

    host, port = door.origin.address
    headers = {TICKET_HEADER: door.origin.ticket(answer), "Content-Encoding": coding}
    async with (
        aiohttp.ClientSession() as session,
        session.put(f"http://{host}:{port}/any", data=body, headers=headers) as response,
    ):
        assert (response.status, await response.text()) == (200, coding)
    assert came == [body]


async def test_a_head_that_the_door_let_in_is_read(door: Door) -> None:
    """Of a write that goes to the origin as it came, with a long token for one."""
    host, port = door.origin.address
    long, many = "x" * (MAX_HEADERS - 1024), {f"X-{number}": "x" for number in range(300)}
    headers = {TICKET_HEADER: door.origin.ticket(door.serving.of()), "Authorization": long, **many}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}/{'a' * MAX_TARGET}", headers=headers) as response,
    ):
        assert response.status == 200


@pytest.mark.parametrize(
    ("error", "code", "delay"),
    [
        (forbidden("not you"), 403, None),
        (unavailable("later", retry_after=3), 503, "3"),
        (unavailable("no"), 503, None),
        (RuntimeError("the secret reason"), 500, None),
    ],
)
async def test_errors_are_statuses(door: Door, error: Exception, code: int, delay: str | None) -> None:
    door.serving.error = error
    found, text, headers = await door.knock(door.origin.ticket(door.serving.of()))
    assert found == code
    assert headers["Content-Type"].startswith("application/json")
    assert headers.get("Retry-After") == delay
    assert json.loads(text)["code"] == code
    assert "secret" not in text


async def test_a_client_that_left_is_no_error(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    door.serving.error = aiohttp.ClientConnectionResetError("Cannot write to closing transport")
    status, _, _ = await door.knock(door.origin.ticket(door.serving.of()))
    assert status == CLIENT_LEFT
    assert not caplog.records


async def test_it_is_on_loopback_alone(door: Door) -> None:
    assert door.origin.address[0] == "127.0.0.1"


class First:
    """Ports of which the first that is asked for is taken."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    def __contains__(self, port: object) -> bool:
        self.asked.append(port)
        return len(self.asked) == 1


async def test_the_origin_takes_no_port_of_the_hubs_own() -> None:
    taken = First()
    origin = Origin(taken)
    origin.close()
    first, second = taken.asked
    assert first != second
    assert origin.address == ("127.0.0.1", second)
