"""Objects of a store as JSON and as Tables, in either encoding of the store."""

from __future__ import annotations

import orjson

from kube.json_type import Json
from kube.store.listing import Form, Listing
from kube.store.made_forms import RECODED, RECODED_METADATA, TABLES, TableForm
from kube.store.projection import Projection
from kube.store.scope import EVERYTHING
from kube.store.store import Store
from kube.store.stream_coding import PLAIN
from kube.store.view import View
from kube.wire.codec import codec_for
from kube.wire.codec_base import ListMeta
from kube.wire.encoding import Encoding
from tests.kube.support import recorded

JSON, PROTOBUF = Encoding.JSON, Encoding.PROTOBUF
SERVICE: Json = orjson.loads(recorded.body("services.single", JSON))


def store_of(encoding: Encoding, raw: bytes | None = None) -> Store:
    store = Store()
    found = recorded.single("services.single", encoding)[2]
    store.replace(codec_for(encoding), "v1", "Service", 9, [found if raw is None else raw])
    return store


def test_json_is_produced_from_both_encodings(encoding: Encoding) -> None:
    (item,) = store_of(encoding)
    codec = RECODED[JSON].codec(item.store.codec)
    assert orjson.loads(codec.encode_single("v1", "Service", RECODED[JSON].raw(codec, item))) == SERVICE
    found = orjson.loads(RECODED_METADATA[JSON, "v1"].raw(codec, item))
    assert (found["kind"], found["metadata"]) == ("PartialObjectMetadata", SERVICE["metadata"])


def test_a_table_of_a_list_has_its_version_and_continue_token(encoding: Encoding) -> None:
    def listed(form: Form, store: Store, meta: ListMeta) -> Json:
        listing = Listing(
            form.codec(store.codec), *form.listed_type("v1", "Service"), meta, list(store), form
        )
        body = listing.body(listing.formed(listing.items))
        text = b"".join(body)
        assert len(text) == body.size
        found: Json = orjson.loads(text)
        return found

    found = listed(TableForm("Object"), store_of(encoding), ListMeta(9, "next", 3))
    assert found["metadata"] == {"resourceVersion": "9", "continue": "next", "remainingItemCount": 3}
    assert [row["object"] for row in found["rows"]] == [SERVICE]


def test_a_table_of_one_object_has_the_objects_version() -> None:
    (item,) = store_of(PROTOBUF)
    found = orjson.loads(TableForm("None").raw(item.store.codec, item))
    assert found["metadata"] == {"resourceVersion": SERVICE["metadata"]["resourceVersion"]}
    assert [row["cells"][0] for row in found["rows"]] == [SERVICE["metadata"]["name"]]


def test_an_unreadable_object_is_listed_by_its_metadata() -> None:
    unpruned = recorded.single("services.single", PROTOBUF)[2]
    (item,) = store_of(PROTOBUF, unpruned + b"\x12\x02\x12\x7f")
    found = orjson.loads(RECODED[JSON].raw(item.store.codec, item))
    assert set(found) == {"kind", "apiVersion", "metadata"}
    assert found["metadata"]["name"] == SERVICE["metadata"]["name"]


async def test_only_the_first_event_of_a_table_watch_has_columns(encoding: Encoding) -> None:
    """`tests/hub/test_filtered_tables.py` compares this with kube-apiserver."""
    store = store_of(encoding)
    view = View(Projection(store, None), EVERYTHING, TABLES["v1", "Metadata"])
    watcher = view.watch_list(bookmarks=True, coding=PLAIN)
    frames = [orjson.loads(each) for each in view.headed(b"".join(watcher.initial_events())).splitlines()]
    assert [each["type"] for each in frames] == ["ADDED", "BOOKMARK"]
    state, bookmark = (each["object"] for each in frames)
    assert [each["name"] for each in state["columnDefinitions"]][:2] == ["Name", "Type"]
    assert state["rows"][0]["object"]["metadata"]["name"] == SERVICE["metadata"]["name"]
    assert (bookmark["metadata"], bookmark["columnDefinitions"]) == ({"resourceVersion": "9"}, None)
    ended = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
    assert bookmark["rows"][0]["object"]["metadata"] == ended
