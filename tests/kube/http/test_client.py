"""The client: the requests that it sends, how it decodes responses, and how it attributes a failure."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from aiohttp import web

from kube.errors import StatusError, forbidden
from kube.http.client import Client, Unreachable
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.scriptable.presentation import encode_status
from tests.cloud.sessions import new_session
from tests.kube.support.serving import Handler, serving

type Serve = Callable[[Handler], Awaitable[Client]]

GZIP = {"Content-Encoding": "gzip"}


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serve all requests with a handler; return a client of that server."""
    async with AsyncExitStack() as servers, new_session() as session:

        async def start(handler: Handler) -> Client:
            url = await servers.enter_async_context(serving(handler))
            return Client(session, f"{url}/", {"X-Own": "1"})

        yield start


def answering(
    body: bytes, status: int = 200, content_type: str = "application/json", **headers: str
) -> Handler:
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers={"Content-Type": content_type, **named})

    return handler


def streaming(*parts: bytes | None, **headers: str) -> Handler:
    """Return a watch in these parts; None loses the connection."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json;stream=watch", **named})
        await response.prepare(request)
        for part in parts:
            if part is not None:
                await response.write(part)
            elif request.transport is not None:
                request.transport.close()
        return response

    return handler


async def watched(client: Client, timeout: float = 10.0) -> bytes:
    got = b""
    async with client.watch("/w", query={}, accept="application/json", timeout=timeout) as stream:
        async for chunk in stream.chunks:
            got += chunk
    return got


# -- requests ------------------------------------------------------------------------------------------------------


async def test_a_request_carries_its_arguments(serve: Serve) -> None:
    seen: dict[str, object] = {}

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.update(method=request.method, path=request.raw_path, query=dict(request.query))
        seen.update(
            {name: request.headers.get(name) for name in ("Accept", "Accept-Encoding", "X-Own", "X-More")}
        )
        seen.update(type=request.headers["Content-Type"], body=await request.read())
        return web.Response(body=b"made", content_type="text/plain", status=201)

    client = (await serve(handler)).with_headers({"X-More": "2"})
    query = {"labelSelector": "!a,b in (c,d)", "fieldSelector": "x!=1+1"}
    answer = await client.request(
        "POST",
        "/api/v1/namespaces/a%2Fb/services",
        query=query,
        accept="text/plain",
        body=b"{}",
        content_type="application/merge-patch+json",
    )
    assert (answer.content_type, answer.body) == ("text/plain", b"made")
    path = str(seen.pop("path"))
    assert path.partition("?")[0] == "/api/v1/namespaces/a%2Fb/services"
    assert seen == {
        "method": "POST",
        "query": query,
        "Accept": "text/plain",
        "Accept-Encoding": "gzip",
        "X-Own": "1",
        "X-More": "2",
        "type": "application/merge-patch+json",
        "body": b"{}",
    }


@pytest.mark.parametrize(
    "packed", [gzip.compress(b"x" * 1000)[:-9], b"no gzip", b""], ids=["cut", "none", "empty"]
)
async def test_a_truncated_gzip_body_is_unreachable(serve: Serve, packed: bytes) -> None:
    client = await serve(answering(packed, Content_Encoding="gzip"))
    with pytest.raises(Unreachable):
        await client.request("GET", "/")


async def test_a_truncated_body_is_unreachable(serve: Serve) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 100
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    client = await serve(handler)
    with pytest.raises(Unreachable, match="GET /x: "):
        await client.request("GET", "/x")


async def test_a_silent_server_is_unreachable_after_the_timeout(serve: Serve) -> None:
    async def silent(_: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    client = await serve(silent)
    with pytest.raises(Unreachable, match="TimeoutError"):
        await client.request("GET", "/", timeout=0.05)
    with pytest.raises(Unreachable):
        await watched(client, timeout=0.05)


# -- refusals ------------------------------------------------------------------------------------------------------


async def refused(client: Client, *, watch: bool) -> StatusError:
    asked = watched(client) if watch else client.request("GET", "/")
    with pytest.raises(StatusError) as raised:
        await asked
    return raised.value


@pytest.mark.parametrize("watch", [False, True], ids=["request", "watch"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
async def test_the_clouds_refusal_is_returned(
    serve: Serve, encoding: Encoding, packed: bool, watch: bool
) -> None:
    """A request for protobuf is refused in protobuf."""
    codec = codec_for(encoding)
    refusal = forbidden('services is forbidden: User "node" cannot list resource "services"')
    body = encode_status(refusal, encoding)
    headers = GZIP if packed else {}

    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        text = gzip.compress(body) if packed else body
        return web.Response(body=text, status=403, headers={"Content-Type": codec.content_type, **headers})

    error = await refused(await serve(handler), watch=watch)
    assert (error.code, error.reason, error.message) == (403, "Forbidden", refusal.message)


@pytest.mark.parametrize("watch", [False, True], ids=["request", "watch"])
@pytest.mark.parametrize(("status", "reason"), [(410, "Expired"), (502, ""), (404, "NotFound")])
async def test_a_refusal_without_a_status_is_identified_by_its_code(
    serve: Serve, status: int, reason: str, watch: bool
) -> None:
    client = await serve(answering(b"<html>sorry</html>", status, "text/html"))
    error = await refused(client, watch=watch)
    assert (error.code, error.reason) == (status, reason)
    assert "sorry" in error.message


@pytest.mark.parametrize("watch", [False, True], ids=["request", "watch"])
async def test_a_redirect_is_not_followed(serve: Serve, watch: bool) -> None:
    """The redirected request would bypass the hub's own listener, with this client's headers."""
    asked: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.path)
        if request.path == "/there":
            return web.Response(body=b"{}")
        return web.Response(status=307, headers={"Location": "/there"})

    client = await serve(handler)
    with pytest.raises((StatusError, Unreachable)):
        await (watched(client) if watch else client.request("GET", "/"))
    assert "/there" not in asked


# -- watches -------------------------------------------------------------------------------------------------------


def members(*texts: bytes) -> list[bytes]:
    return [gzip.compress(text) for text in texts]


@pytest.mark.parametrize(
    "parts",
    [
        members(b"one", b"two", b"", b"three"),
        [b"".join(members(b"one", b"two")), *members(b"three")],
        [bytes((byte,)) for byte in b"".join(members(b"one", b"twothree"))],
        [gzip.compress(b"onetwothree")],
    ],
    ids=["a member each", "two at once", "byte by byte", "one member"],
)
async def test_a_gzip_watch_is_decompressed_member_by_member(serve: Serve, parts: list[bytes]) -> None:
    """Since Kubernetes 1.37 each flush of the server is its own gzip member."""
    client = await serve(streaming(*parts, Content_Encoding="gzip"))
    assert await watched(client) == b"onetwothree"


@pytest.mark.parametrize(
    "handler",
    [streaming(b"one", None), streaming(b"no gzip", Content_Encoding="gzip")],
    ids=["lost", "no gzip"],
)
async def test_a_watch_that_breaks_is_unreachable(serve: Serve, handler: Handler) -> None:
    client = await serve(handler)
    with pytest.raises(Unreachable, match="watch /w: "):
        await watched(client)


async def test_a_watch_beyond_its_timeout_is_unreachable(serve: Serve) -> None:
    stopped = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return response

    client = await serve(handler)
    with pytest.raises(Unreachable):
        await watched(client, timeout=0.1)
    await asyncio.wait_for(stopped.wait(), 5)


async def test_an_error_of_the_event_handler_is_passed_on(serve: Serve) -> None:
    """It is not a network error, and must not be retried as one."""
    client = await serve(streaming(b"one"))

    async def read() -> None:
        async with client.watch("/w", query={}, accept="x", timeout=10) as stream:
            async for _ in stream.chunks:
                raise PermissionError("a listener's disk")

    with pytest.raises(PermissionError):
        await read()
