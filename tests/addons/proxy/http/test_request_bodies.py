"""Lines of chunks that do not end, and bodies in very small chunks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator, Iterator

import pytest
from mitmproxy import http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy.commands import Command, SendData
from mitmproxy.proxy.layers.http import HttpLayer
from mitmproxy.proxy.layers.http._base import ReceiveHttp
from mitmproxy.proxy.layers.http._events import RequestData, RequestEndOfMessage
from mitmproxy.test import taddons, tflow

from addons.proxy.http.client_connections import joined
from addons.proxy.http.http_layer import HubHttpLayer
from addons.requests.exchange.request_bodies import (
    CHUNKS_AT_ONCE,
    LARGEST_CHUNK,
    MAX_CHUNK_LINE,
)
from tests.addons.support.proxied import ANSWER, FROM_NODE, Proxy, Raw

CHUNKED = b"Host: hub\r\nTransfer-Encoding: chunked\r\n\r\n"
POST = b"POST http://hub/ HTTP/1.1\r\n" + CHUNKED


@pytest.fixture
def proxy() -> Iterator[Proxy[Raw]]:
    with taddons.context(Proxyserver()) as context:
        made = Proxy(context.options, Raw(ANSWER), Raw(FROM_NODE), HubHttpLayer)
        made.failover = None
        yield made


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("begin", [b"5;a=", b"0", b"1\r\nx\r\n0\r\nX: "])
async def test_a_line_without_end_is_refused(proxy: Proxy[Raw], begin: bytes, is_streamed: bool) -> None:
    proxy.is_request_streamed = is_streamed
    async with proxy.serve(), asyncio.timeout(20):
        answer = await proxy.ask(POST + begin + b"0" * (MAX_CHUNK_LINE + 1))
    assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    "begin",
    [
        *(b"zz\r\n", b"-1\r\n", b" 5\r\n", b"0x5\r\n", b"5 5\r\n", b"\r\n", b"\xef\xbc\x95\r\n"),
        *(b"5\r\nhello!!", b"5\r\nhello\r\nzz\r\n"),
        *(b"%x\r\nxx" % (LARGEST_CHUNK + 10), b"1" + b"0" * 16 + b"\r\nx", b"1" + b"0" * 30 + b"\r\n"),
    ],
)
async def test_a_malformed_chunk_is_refused_with_a_status(
    proxy: Proxy[Raw], begin: bytes, is_streamed: bool
) -> None:
    proxy.is_request_streamed = is_streamed
    async with proxy.serve(), asyncio.timeout(20):
        answer = await proxy.ask(POST + begin)
    assert answer.startswith(b"HTTP/1.1 400")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["reason"] == "BadRequest"
    assert not proxy.server.got or is_streamed


async def test_mitmproxys_own_connection_hangs_up_at_a_malformed_chunk(proxy: Proxy[Raw]) -> None:
    proxy.layer_type = HttpLayer
    async with proxy.serve(), asyncio.timeout(20):
        assert not await proxy.ask(POST + b"zz\r\n")


async def test_a_servers_line_without_end_is_a_502(proxy: Proxy[Raw]) -> None:
    proxy.server.says = b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"5;" + b"x" * 2 * MAX_CHUNK_LINE
    async with proxy.serve(), asyncio.timeout(20):
        answer = await proxy.ask(b"GET http://hub/ HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502")


async def test_a_body_in_very_small_chunks_arrives_whole_and_in_turns(proxy: Proxy[Raw]) -> None:
    """More than are handled in one go come in one packet."""
    count = 5 * CHUNKS_AT_ONCE + 3
    close = POST.replace(b"Host", b"Connection: close\r\nHost")
    flows: list[http.HTTPFlow] = []
    proxy.decide = flows.append
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(close + b"1\r\nx\r\n" * count + b"0\r\n\r\n")
        assert (await reader.read()).endswith(b"server")
        writer.close()
    assert flows[0].request.raw_content == b"x" * count


def pieces_of(count: int) -> Generator[Command]:
    for _ in range(count):
        yield ReceiveHttp(RequestData(1, b"x"))


@pytest.mark.parametrize(("count", "size"), [(3, 3), (CHUNKS_AT_ONCE + 5, CHUNKS_AT_ONCE)])
def test_no_more_pieces_are_taken_than_fit_in_one_go(count: int, size: int) -> None:
    made = joined(pieces_of(count))
    (event,) = [each.event for each in iter(lambda: next(made, None), None) if isinstance(each, ReceiveHttp)]
    assert event == RequestData(1, b"x" * size)


def test_pieces_that_follow_each_other_are_one() -> None:
    def data(stream: int, text: bytes) -> Command:
        return ReceiveHttp(RequestData(stream, text))

    end = ReceiveHttp(RequestEndOfMessage(1))
    sent = SendData(tflow.tclient_conn(), b"")
    made = list(joined(each for each in (data(1, b"a"), data(1, b"b"), end, sent, data(3, b"c"))))
    assert [type(each) for each in made] == [ReceiveHttp, ReceiveHttp, SendData, ReceiveHttp]
    events = [each.event for each in made if isinstance(each, ReceiveHttp)]
    assert events == [RequestData(1, b"ab"), RequestEndOfMessage(1), RequestData(3, b"c")]
