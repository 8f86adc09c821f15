"""Lists are sent in pieces of bounded size, with other clients served in between, and give the same result."""

from __future__ import annotations

import asyncio

import pytest

from addons.requests.answers import Answer
from addons.views.list_answer import list_answer
from kube.http.zstd_bodies import unpack
from kube.store.listing import Form, Listing
from kube.wire.codec_base import ListMeta
from kube.wire.encoding import Encoding
from tests.kube.support.toys import Toy, filled

PIECE = 1024
MANY = 500


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube.wire.codec_base.CHUNK", PIECE)
    monkeypatch.setattr("addons.views.list_answer.CHUNK", PIECE)
    monkeypatch.setattr("kube.store.listing.Form.batch_size", 50)


def listing(encoding: Encoding = Encoding.PROTOBUF, *, metadata_only: bool = False) -> Listing:
    store = filled(
        1000, *(Toy(f"s{number}", version=number + 1) for number in range(MANY)), encoding=encoding
    )
    form = Form(metadata_only=metadata_only)
    return Listing(store.codec, *form.type_of("v1", "Service"), ListMeta(store.version), list(store), form)


def body_of(listed: Listing) -> bytes:
    raws = [listed.form.raw(listed.codec, item) for item in listed.items]
    return bytes(listed.codec.encode_list(listed.api_version, listed.kind, listed.meta, raws))


def pieces_of(answer: Answer) -> list[bytes]:
    assert not isinstance(answer.body, bytes)
    return list(answer.body)


@pytest.mark.parametrize("encoding", Encoding)
async def test_pieces_of_a_list_are_produced_as_the_client_reads(encoding: Encoding) -> None:
    listed = listing(encoding)
    largest = max(len(item.raw) for item in listed.items)
    answer = await list_answer(listed)
    pieces = pieces_of(answer)
    assert b"".join(pieces) == body_of(listed)
    assert len(pieces) > 5
    assert max(map(len, pieces)) < 2 * PIECE + largest
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-cache, private")
    assert answer.headers["Content-Type"] == encoding


async def test_callbacks_run_while_a_metadata_list_is_made() -> None:
    async def run_callbacks(counted: list[int]) -> None:
        """Run in every iteration of the loop."""
        while True:
            counted[0] += 1
            await asyncio.sleep(0)

    counted = [0]
    other = asyncio.create_task(run_callbacks(counted))
    await list_answer(listing(metadata_only=True))
    other.cancel()
    assert counted[0] >= MANY // 50 - 1


async def test_a_list_has_the_state_at_the_time_of_the_request() -> None:
    listed = listing()
    before = body_of(listed)
    answer = await list_answer(listed)
    store = listed.items[0].store
    store.replace(store.codec, "v1", "Service", 2000, [])
    assert b"".join(pieces_of(answer)) == before


async def test_a_list_in_zstd_has_its_content_encoding() -> None:
    listed = listing()
    answer = await list_answer(listed, packed=True)
    assert answer.headers["Content-Encoding"] == "zstd"
    assert await unpack(b"".join(pieces_of(answer)), 10**9) == body_of(listed)


async def test_a_list_of_one_piece_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = listing()
    monkeypatch.setattr("addons.views.list_answer.CHUNK", len(body_of(listed)))
    assert (await list_answer(listed)).body == body_of(listed)


async def test_an_unwritable_object_is_an_error_and_no_truncated_list() -> None:
    listed = listing(Encoding.JSON, metadata_only=True)
    listed.items[-1].stored = b"garbage"
    with pytest.raises(ValueError, match=r"JSON|character"):
        await list_answer(listed)
