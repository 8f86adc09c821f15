"""Lists go out in pieces of a bounded size, other clients get turns in between, and the answer is the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from addons.views.list_response import list_response
from addons.views.responses import AnswerBody
from kube.http.zstd_bodies import unpack
from kube.store.listing import Form, Listing
from kube.wire.encoding import Encoding
from kube.wire.negotiation import METADATA_KIND
from tests.kube.support.toys import Toy, filled

PIECE = 1024
MANY = 500
ADDRESS = "127.0.0.1"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube.wire.codec_base.PIECE", PIECE)
    monkeypatch.setattr("addons.views.list_response.PIECE", PIECE)
    monkeypatch.setattr("kube.store.listing.Form.at_once", 50)


def listing(encoding: Encoding = Encoding.PROTOBUF, *, metadata_only: bool = False) -> Listing:
    store = filled(
        1000, *(Toy(f"s{number}", version=number + 1) for number in range(MANY)), encoding=encoding
    )
    form = Form(metadata_only=metadata_only)
    return Listing(store.codec, *form.type_of("v1", "Service"), store.version, list(store), form)


def whole(listed: Listing) -> bytes:
    raws = [listed.form.raw(listed.codec, item) for item in listed.items]
    return bytes(listed.codec.encode_list(listed.api_version, listed.kind, listed.version, raws))


async def whole_response(listed: Listing) -> web.Response:
    """A list with a Content-Length."""
    answer = await list_response(listed)
    assert isinstance(answer, web.Response)
    return answer


class Writer:
    """Takes pieces as fast as they come, and never makes who writes wait."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    async def write(self, piece: bytes) -> None:
        self.pieces.append(piece)


async def turns(counted: list[int]) -> None:
    """Somebody else, who wants a turn all the time."""
    while True:
        counted[0] += 1
        await asyncio.sleep(0)


@pytest.mark.parametrize("encoding", Encoding)
async def test_pieces_are_bounded_and_others_have_their_turns_between_them(encoding: Encoding) -> None:
    listed = listing(encoding)
    largest = max(len(item.raw) for item in listed.items)
    answer = await whole_response(listed)
    writer, counted = Writer(), [0]
    other = asyncio.create_task(turns(counted))
    assert isinstance(answer.body, aiohttp.payload.Payload)
    await answer.body.write(writer)  # type: ignore[arg-type]  # all of one that is used
    other.cancel()
    assert b"".join(writer.pieces) == whole(listed)
    assert answer.body.size == len(whole(listed))
    assert max(map(len, writer.pieces)) < 2 * PIECE + largest
    assert counted[0] >= len(writer.pieces) > 5


async def test_others_have_their_turns_while_metadata_is_made() -> None:
    counted = [0]
    other = asyncio.create_task(turns(counted))
    await list_response(listing(metadata_only=True))
    other.cancel()
    assert counted[0] >= MANY // 50 - 1


async def test_a_client_has_the_list_of_when_it_asked() -> None:
    listed = listing()
    before = whole(listed)
    answer = await whole_response(listed)
    store = listed.items[0].store
    store.replace(store.codec, "v1", "Service", 2000, [])
    writer = Writer()
    assert isinstance(answer.body, aiohttp.payload.Payload)
    await answer.body.write(writer)  # type: ignore[arg-type]  # all of one that is used
    assert b"".join(writer.pieces) == before
    assert answer.body.decode(errors="replace") == before.decode(errors="replace")


class Client:
    """Takes a body's pieces, until it leaves."""

    def __init__(self, leaves_after: int = MANY) -> None:
        self.pieces: list[bytes] = []
        self._leaves_after = leaves_after

    async def begun(self) -> bool:
        return True

    async def write(self, data: bytes) -> None:
        if len(self.pieces) == self._leaves_after:
            raise ConnectionResetError("the client has left")
        self.pieces.append(data)

    def outlet(self) -> None:
        """All goes by `write`."""


def request() -> web.BaseRequest:
    return make_mocked_request("GET", "/")


@pytest.mark.parametrize("encoding", Encoding)
async def test_a_list_of_many_pieces_goes_to_the_clients_stream(encoding: Encoding) -> None:
    listed, client = listing(encoding), Client()
    largest = max(len(item.raw) for item in listed.items)
    answer = await list_response(listed, AnswerBody(request(), client))
    assert b"".join(client.pieces) == whole(listed)
    assert max(map(len, client.pieces)) < 2 * PIECE + largest
    assert (answer.status, answer.content_length, answer.headers["Cache-Control"]) == (
        200,
        None,
        "no-cache, private",
    )


async def test_a_list_in_zstd_says_so() -> None:
    listed, client = listing(), Client()
    answer = await list_response(listed, AnswerBody(request(), client), packed=True)
    assert answer.headers["Content-Encoding"] == "zstd"
    assert await unpack(b"".join(client.pieces), 10**9) == whole(listed)


async def test_a_list_of_one_piece_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    listed, client = listing(), Client()
    monkeypatch.setattr("addons.views.list_response.PIECE", len(whole(listed)))
    answer = await list_response(listed, AnswerBody(request(), client))
    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, aiohttp.payload.Payload)
    assert (answer.body.size, client.pieces) == (len(whole(listed)), [])


async def test_a_client_that_leaves_ends_its_list() -> None:
    client = Client(leaves_after=3)
    answer = await list_response(listing(), AnswerBody(request(), client))
    assert (answer.prepared, len(client.pieces)) == (True, 3)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A server that answers with the list, and with a broken object where a client asks for metadata alone."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        listed = listing(Encoding.JSON, metadata_only=request.path == f"/{METADATA_KIND}")
        if listed.form.metadata_only:
            listed.items[-1].kept = b"garbage"
        return await list_response(listed)

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    site = web.TCPSite(runner, ADDRESS, 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    await runner.cleanup()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_headers_are_those_of_a_whole_body(url: str, method: str) -> None:
    wanted = whole(listing(Encoding.JSON))
    async with aiohttp.ClientSession() as session:
        for _ in range(2):  # the connection is good for another one
            async with session.request(method, url) as answer:
                got = await answer.read()
            assert got == (wanted if method == "GET" else b"")
            assert answer.status == 200
            assert answer.headers["Content-Length"] == str(len(wanted))
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.headers["Cache-Control"] == "no-cache, private"
            assert "Transfer-Encoding" not in answer.headers


async def test_what_cannot_be_written_is_no_torn_list(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/{METADATA_KIND}") as answer:
        assert answer.status == 500
