"""A list of a view: one state at one version, in the form that the client asked for."""

from __future__ import annotations

import json

import pytest

from kube.json_type import Json
from kube.packed_text import Kept, PackedText
from kube.store.listing import Form, Listing
from tests.kube.support.toys import Toy, filled, tell, view_of


def document(listing: Listing) -> Json:
    found: Json = json.loads(b"".join(listing.body(listing.formed(listing.items))))
    return found


@pytest.mark.parametrize("metadata_only", [False, True])
async def test_later_changes_do_not_reach_a_list(metadata_only: bool) -> None:
    store = filled(10, Toy("x", version=4))
    listing = view_of(store, metadata_only=metadata_only).listing()
    tell(store, "DELETED", Toy("x", version=11))
    found = document(listing)
    assert found["metadata"] == {"resourceVersion": "10"}
    (item,) = found["items"]
    assert item["metadata"]["name"] == "x"
    assert ("spec" in item) == (not metadata_only)


def test_a_list_unpacks_its_texts_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube.wire.codec_base.PIECE", 3_000)
    store = filled(10, *(Toy(f"s{number}", version=4, app="x" * 2_000) for number in range(6)))
    listing = view_of(store).listing()
    formed = listing.formed(listing.items)
    assert {type(each) for each in formed} == {PackedText}
    unpacked: list[Kept] = []

    class Counted(PackedText):
        def __bytes__(self) -> bytes:
            unpacked.append(self)
            return super().__bytes__()

    body = listing.body([Counted(bytes(each)) for each in formed])
    assert not unpacked
    pieces = iter(body)
    first = next(pieces)
    assert len(unpacked) == 2
    rest = b"".join(pieces)
    assert len(unpacked) == 6
    assert len(first + rest) == body.size
    assert [each["metadata"]["name"] for each in json.loads(first + rest)["items"]] == [
        f"s{number}" for number in range(6)
    ]


@pytest.mark.parametrize(
    ("metadata_only", "expected"),
    [(False, ("v1", "Service")), (True, ("meta.k8s.io/v1", "PartialObjectMetadata"))],
)
def test_a_form_names_the_type_that_it_writes(metadata_only: bool, expected: tuple[str, str]) -> None:
    assert Form(metadata_only=metadata_only).type_of("v1", "Service") == expected
