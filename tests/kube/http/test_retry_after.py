"""Retry-After delays every request of its queue, and no request of another queue."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from email.utils import format_datetime

import pytest

from kube.errors import StatusError, timeout, too_large_version, unavailable
from kube.http.client import Client
from kube.http.retry_after import MAX_RETRY_AFTER, retry_after
from kube.http.session import Response

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        (" 1 ", 1),
        ("0", None),
        ("-1", None),
        ("", None),
        ("soon", None),
        ("86400", MAX_RETRY_AFTER),
        ("9" * 400, MAX_RETRY_AFTER),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER),
    ],
)
async def test_a_retry_after_header_is_parsed(text: str, seconds: int | None) -> None:
    assert retry_after({"Retry-After": text}) == seconds


async def test_a_date_counts_from_now() -> None:
    then = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)
    assert retry_after({"Retry-After": format_datetime(then, usegmt=True)}) in (29, 30)


class Answer:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self._body = status, headers, body

    async def read(self, limit: int) -> bytes:
        return self._body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body


class Busy:
    """A session whose server returns one response, and counts the requests."""

    def __init__(self, error: StatusError, header: str = "") -> None:
        headers = {"Retry-After": header} if header else {}
        self.answer = Answer(error.code, headers, error.to_json())
        self.asked = 0

    @asynccontextmanager
    async def open(
        self, method: str, url: str, *, headers: Iterable[tuple[str, str]], body: bytes | None, timeout: float
    ) -> AsyncIterator[Response]:
        self.asked += 1
        yield self.answer


async def get(client: Client) -> None:
    await client.request("GET", "/")


async def watch(client: Client) -> None:
    async with client.watch("/", query={}, accept="", timeout=1):
        pass


async def refused(ask: Awaitable[None]) -> StatusError:
    with pytest.raises(StatusError) as found:
        await ask
    return found.value


@pytest.mark.parametrize("ask", [get, watch])
@pytest.mark.parametrize(
    ("error", "header", "seconds"),
    [
        (StatusError(429, "TooManyRequests", "slow"), "30", 30),
        (unavailable("later", retry_after=7), "", 7),
        (StatusError(503, "ServiceUnavailable", "down"), "86400", MAX_RETRY_AFTER),
    ],
)
async def test_requests_are_refused_locally_until_the_delay_is_over(
    ask: Callable[[Client], Awaitable[None]], error: StatusError, header: str, seconds: int
) -> None:
    """Twenty lists once reached a cloud in the 20 s after its Retry-After of 30 s."""
    busy = Busy(error, header)
    first = Client(busy, "http://cloud", {})
    second = first.with_headers({"Authorization": "Bearer t"})
    assert (await refused(ask(first))).retry_after == seconds
    for _ in range(seconds):
        held = await refused(get(second))
        assert held.retry_after is not None
        await asyncio.sleep(1)
    assert busy.asked == 1
    await refused(ask(second))
    assert busy.asked == 2


@pytest.mark.parametrize(
    "error", [too_large_version(5, 4), timeout("slow"), StatusError(429, "TooManyRequests", "slow down")]
)
async def test_an_error_of_one_request_or_without_a_delay_delays_nothing(error: StatusError) -> None:
    busy = Busy(error)
    client = Client(busy, "http://cloud", {})
    for _ in range(3):
        await refused(get(client))
    assert busy.asked == 3


async def test_a_delayed_request_of_the_hub_itself_delays_the_rest() -> None:
    busy = Busy(unavailable("later"), "30")
    client = Client(busy, "http://cloud", {})
    await client.relay("GET", "/version", headers=[], body=b"", is_own=True)
    await refused(get(client))
    assert busy.asked == 1


async def test_a_delay_applies_only_to_its_queue_and_client() -> None:
    busy = Busy(unavailable("later", retry_after=30))
    client = Client(busy, "http://cloud", {})
    await refused(get(client))
    await refused(get(client.with_headers({}, queue="lease")))
    await client.relay("GET", "/", headers=[], body=b"")
    assert busy.asked == 3


async def test_an_excessive_retry_after_is_bounded_and_reported(reached: list[str]) -> None:
    assert retry_after({"Retry-After": "3600"}) == MAX_RETRY_AFTER
    assert reached == ["time that a server asks for"]
