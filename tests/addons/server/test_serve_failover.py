"""A request that the hub answers after its server failed, and intercepted responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from mitmproxy import http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from addons.offline.cached_response import MAX_CACHED
from addons.server import respond
from addons.server.limits.client_addresses import STREAM_UNREAD
from addons.telemetry import metrics
from tests.addons.support.answering import REQUEST
from tests.addons.support.lasting_parts import connected
from tests.addons.support.observed import until, value_of
from tests.addons.support.proxied import ANSWER, FROM_NODE, Endless, Proxy, Raw, watching_proxy
from tests.hub.support.http2 import Streams

GET = b"GET http://hub/api/v1/nodes HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n"
POST = b"POST http://hub/api/v1/x HTTP/1.1\r\nHost: hub\r\nConnection: close\r\nContent-Length: 5\r\n\r\nabc\n\xff"
BROKEN = {
    "closed before headers": b"",
    "closed within headers": b"HTTP/1.1 200 OK\r\nContent-Le",
    "closed within the body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nX-Of: server\r\n\r\nhalf of",
    "no HTTP": b"garbage\r\n\r\n",
}
SOCKETS = 16 * 2**20
"""An upper bound of the bytes in the socket buffers between the server and the client."""


@pytest.fixture
def proxy() -> Iterator[Proxy[Raw]]:
    with taddons.context(Proxyserver()):
        yield Proxy(Raw(ANSWER), Raw(FROM_NODE))


def parts(answer: bytes) -> tuple[int, bytes]:
    """Return code and body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def test_no_failover_happens_for_a_server_that_responds(proxy: Proxy[Raw]) -> None:
    async with proxy.serve():
        assert parts(await proxy.ask(GET)) == (200, b"server")
    assert not proxy.node.got


@pytest.mark.parametrize("says", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("request_", [GET, POST], ids=["GET", "POST"])
async def test_a_request_whose_server_fails_is_answered_by_the_hub(
    proxy: Proxy[Raw], says: bytes, request_: bytes
) -> None:
    proxy.server.says = says
    async with proxy.serve():
        answer = await proxy.ask(request_)
    assert parts(answer) == (200, b"node"), proxy.hooks
    assert b"X-Of" not in answer, "nothing of what the server began to say"
    assert (len(proxy.server.got), len(proxy.node.got)) == (1, 1)
    assert proxy.node.got[0].partition(b"\r\n\r\n")[2] == request_.partition(b"\r\n\r\n")[2]
    assert proxy.hooks[-1] == "response"
    assert "error" not in proxy.hooks, "the flow did not fail"


async def test_a_request_whose_server_refuses_the_connection_is_answered_by_the_hub(
    proxy: Proxy[Raw],
) -> None:
    async with proxy.serve():
        free = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        proxy.server.port = free.sockets[0].getsockname()[1]
        free.close()
        await free.wait_closed()
        assert parts(await proxy.ask(POST)) == (200, b"node")
    assert proxy.node.got[0].endswith(b"abc\n\xff")
    assert "error" not in proxy.hooks


@pytest.mark.parametrize("says", BROKEN.values(), ids=BROKEN)
async def test_a_failover_over_http2_answers_without_disturbing_parallel_streams(
    proxy: Proxy[Raw], says: bytes
) -> None:
    proxy.server.says = says
    async with proxy.serve(is_h2=True), asyncio.timeout(5):
        streams = Streams(*await asyncio.open_connection("127.0.0.1", proxy.port))
        asked = [streams.get("/api/v1/nodes", {}) for _ in range(3)]
        try:
            await streams.until(lambda: all(streams.received[each] for each in asked))
            assert [(streams.status[each], streams.received[each]) for each in asked] == [(200, 4)] * 3
        finally:
            await streams.close()
    assert len(proxy.node.got) == 3


@pytest.mark.parametrize("node_says", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("says", BROKEN.values(), ids=BROKEN)
async def test_a_request_fails_over_only_once(proxy: Proxy[Raw], says: bytes, node_says: bytes) -> None:
    """If the hub's own response fails as well, the client gets 502, not a loop or silence."""
    proxy.server.says, proxy.node.says = says, node_says
    async with proxy.serve(), asyncio.timeout(5):
        assert parts(await proxy.ask(GET))[0] == 502
    assert (len(proxy.server.got), len(proxy.node.got)) == (1, 1)
    assert proxy.hooks.count("error") == 1


@pytest.mark.parametrize("says", BROKEN.values(), ids=BROKEN)
async def test_a_request_without_a_failover_is_502(proxy: Proxy[Raw], says: bytes) -> None:
    proxy.failover = None
    proxy.server.says = says
    async with proxy.serve():
        assert parts(await proxy.ask(GET))[0] == 502
    assert not proxy.node.got
    assert proxy.hooks.count("error") == 1


async def test_a_failed_failover_is_502_and_counted(proxy: Proxy[Raw]) -> None:
    failed = metrics.HOOK_ERRORS.labels("edgehub-failover", "failover")

    def fail(_: http.HTTPFlow) -> None:
        raise RuntimeError("unforeseen")

    before = value_of(failed)
    proxy.failover = fail
    proxy.server.says = b""
    async with proxy.serve():
        assert parts(await proxy.ask(GET))[0] == 502
    assert value_of(failed) == before + 1
    assert proxy.hooks.count("error") == 1


async def test_a_response_that_has_started_is_not_replaced(proxy: Proxy[Raw]) -> None:
    proxy.is_streamed = True
    proxy.server.says = BROKEN["closed within the body"]
    async with proxy.serve():
        answer = await proxy.ask(GET)
    assert parts(answer) == (200, b"half of")
    assert not proxy.node.got
    assert proxy.hooks.count("error") == 1


async def test_no_failover_happens_for_a_disconnected_client(proxy: Proxy[Raw]) -> None:
    proxy.server.says = b""
    async with proxy.serve():
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(POST[:-2])
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    assert (proxy.server.got, proxy.node.got) == ([], [])


# -- responses without an end --------------------------------------------------------------------------------------


async def test_a_response_too_large_to_buffer_is_streamed(proxy: Proxy[Raw]) -> None:
    """The hub buffers a response until its end, and an endless one once filled the memory."""
    proxy.server = server = Endless()
    handled: list[int] = []

    def count(chunk: bytes) -> bytes:
        handled.append(len(chunk))
        return chunk

    proxy.stream_too_large = count
    async with proxy.serve(), asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(GET)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await reader.readexactly(3 * MAX_CACHED)
        assert MAX_CACHED < handled[0] < MAX_CACHED + 2**20
        assert server.sent < 3 * MAX_CACHED + SOCKETS, "it is not read faster than the client takes it"
        writer.close()
        await server.ended.wait()
    assert not proxy.node.got


async def test_a_buffered_response_beyond_the_bound_is_502(proxy: Proxy[Raw]) -> None:
    """A filter needs the complete object: the client gets an error instead of an unfiltered part."""
    proxy.server = server = Endless()
    async with proxy.serve(), asyncio.timeout(20):
        assert parts(await proxy.ask(GET))[0] == 502
        await server.ended.wait()
    assert server.sent < MAX_CACHED + SOCKETS
    assert not proxy.node.got
    assert proxy.hooks.count("error") == 1


LISTS = 3


def response_of(size: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)


@asynccontextmanager
async def buffering_proxy() -> AsyncIterator[tuple[Proxy[Raw], Streams]]:
    """Yield a client of a proxy that buffers each response, of MAX_CACHED bytes, completely."""
    async with connected(Raw(response_of(MAX_CACHED))) as (proxy, streams):
        proxy.is_streamed, proxy.failover = False, proxy.lead_to_node
        yield proxy, streams


async def test_a_client_that_reads_gets_all_of_many_lists() -> None:
    """Two of the three lists of 4 MiB exceed the limit of unread data."""
    async with buffering_proxy() as (proxy, streams):
        asked = [streams.get("/", {}) for _ in range(LISTS)]
        await streams.until(lambda: streams.ended >= {*asked})
        assert [streams.received[each] for each in asked] == [MAX_CACHED] * LISTS
        assert proxy.hooks.count("response") == LISTS
        assert "error" not in proxy.hooks
        assert proxy.layer.address.answers.size == 0


async def test_unread_responses_count_as_buffered_until_their_stream_ends() -> None:
    async with buffering_proxy() as (proxy, streams):
        streams.reads = False
        asked = [streams.get("/", {}) for _ in range(LISTS)]
        await streams.until(lambda: streams.status.keys() >= {*asked})
        layer = proxy.layer
        await until(lambda: layer.address.answers.size == LISTS * MAX_CACHED)
        assert layer.unread <= LISTS * 2 * STREAM_UNREAD
        streams.cancel(asked[0])
        await until(lambda: layer.address.answers.size == (LISTS - 1) * MAX_CACHED)
        assert "error" not in proxy.hooks, "the addons have seen the whole answer"
        streams.reads = True
        for each in asked:
            streams.take(each)
        await streams.until(lambda: streams.ended == {*asked[1:]})
        assert [streams.received[each] for each in asked[1:]] == [MAX_CACHED] * (LISTS - 1)


async def test_a_response_is_buffered_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(respond, "BODY_TIME", 0.3)
    before = value_of(metrics.UNREAD_STREAMS)
    async with buffering_proxy() as (proxy, streams):
        streams.reads = False
        asked = streams.get("/", {})
        await streams.until(lambda: asked in streams.status)
        await streams.until(lambda: asked in streams.ended)
        assert streams.received[asked] < MAX_CACHED
        assert proxy.layer.address.answers.size == 0
    assert value_of(metrics.UNREAD_STREAMS) == before + 1


@pytest.mark.parametrize("size", [STREAM_UNREAD, STREAM_UNREAD + 1])
async def test_an_http1_client_gets_pipelined_responses_in_order(size: int) -> None:
    with watching_proxy() as proxy:
        proxy.server = Raw(response_of(size))
        async with proxy.serve(), asyncio.timeout(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(REQUEST * 2)
            for _ in range(2):
                await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(size) == bytes(size)
            writer.transport.abort()
