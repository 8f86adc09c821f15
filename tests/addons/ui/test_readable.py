"""Bodies of the API as readable text, without secrets."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
import yaml

from addons.ui.masking import LAST_APPLIED, Visible, masked
from addons.ui.readable import LINES, READABLE_BYTES, readable_body, readable_watch
from kube.errors import expired
from kube.json_type import Json
from kube.tables.server_table import table
from kube.wire.codec import codec_for
from kube.wire.codec_base import INITIAL_EVENTS_ENDED, ListMeta
from kube.wire.encoding import Encoding
from tests.addons.support.samples import raw, service
from tests.kube.support import recorded

JSON, PROTOBUF = Encoding.JSON, Encoding.PROTOBUF


def documents(text: str) -> list[Any]:
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("name", recorded.OBJECTS)
def test_both_encodings_give_the_same_text(name: str) -> None:
    json, protobuf = (
        documents(readable_body(encoding, recorded.body(name, encoding)))[0] for encoding in Encoding
    )
    assert protobuf == json


def test_a_table_is_shown_as_kubectl_prints_it() -> None:
    pods = [{"metadata": {"name": name, "uid": "u"}, "type": "t"} for name in ("a", "longer")]
    made = table(pods, "v1", "Secret", {"resourceVersion": "7"}, "Metadata")
    assert readable_body(JSON, orjson.dumps(made)).splitlines() == [
        "NAME     TYPE   DATA   AGE",
        "a        t      0      <unknown>",
        "longer   t      0      <unknown>",
    ]


@pytest.mark.parametrize(
    "parts", [{"rows": [{}]}, {"rows": 7}, {"columnDefinitions": [{"name": 1}]}, {"rows": [{"cells": [1]}]}]
)
def test_a_malformed_table_is_refused(parts: Json) -> None:
    body = orjson.dumps({"kind": "Table", "apiVersion": "meta.k8s.io/v1", **parts})
    with pytest.raises(ValueError, match="no Table"):
        readable_body(JSON, body)


def test_managed_fields_are_folded() -> None:
    (shown,) = documents(readable_body(PROTOBUF, recorded.body("services.single", PROTOBUF)))
    assert shown["metadata"]["managedFields"] == "(2, folded)"
    body = recorded.body("services.single", JSON)
    assert documents(readable_body(JSON, body, Visible(managed_fields=True))) == [orjson.loads(body)]


def test_no_value_of_a_secret_is_shown_in_protobuf() -> None:
    (shown,) = documents(readable_body(PROTOBUF, recorded.body("secrets.single", PROTOBUF)))
    assert shown["data"]
    assert all("hidden" in value for value in shown["data"].values())


def test_a_kind_that_the_schema_does_not_have_shows_its_metadata() -> None:
    body = codec_for(PROTOBUF).encode_single(
        "example.com/v1", "Odd", recorded.single("leases.single", PROTOBUF)[2]
    )
    (shown,) = documents(readable_body(PROTOBUF, body))
    assert shown["kind"] == "Odd"
    assert shown["metadata"]["name"] == "rich"
    assert shown["field 2"].endswith("bytes)")


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("name", recorded.LISTS)
def test_a_list_is_a_head_and_a_document_for_each_item(name: str, encoding: Encoding) -> None:
    page = codec_for(encoding).decode_list(recorded.body(name, encoding))
    head, *items = documents(readable_body(encoding, recorded.body(name, encoding)))
    assert head["kind"] == f"{page.kind}List"
    assert head["resourceVersion"] == str(page.version)
    assert head["items"] == len(items) == len(page.items)
    assert head.get("continue", "") == page.continue_token
    assert {item["kind"] for item in items} <= {page.kind}


@pytest.mark.parametrize("encoding", Encoding)
def test_a_large_list_has_a_line_for_each_item_up_to_a_bound(encoding: Encoding) -> None:
    _, _, item = recorded.single("services.single", encoding)
    body = bytes(codec_for(encoding).encode_list("v1", "Service", ListMeta(7), [item] * (LINES + 3)))
    text = readable_body(encoding, body)
    head, items = documents(text)
    assert head["items"] == LINES + 3
    assert items == ["fixtures/rich"] * LINES
    assert text.endswith("# and 3 more\n")


def test_a_large_object_is_shown_completely() -> None:
    large = service("large") | {"data": {str(number): "x" * 100 for number in range(READABLE_BYTES // 100)}}
    text = readable_body(JSON, raw(large))
    assert orjson.loads(text) == large
    assert text.count("\n") > READABLE_BYTES // 100


@pytest.mark.parametrize("body", [b"", b"[]", b"k8s\x00\xff", b"k8s", b'{"kind":"ServiceList","items":7}'])
def test_a_malformed_object_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        readable_body(PROTOBUF if body.startswith(b"k8s") else JSON, body)


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("name", recorded.STREAMS)
def test_a_watch_is_a_document_for_each_event(name: str, encoding: Encoding) -> None:
    codec = codec_for(encoding)
    frames = codec.frames().feed(recorded.body(name, encoding))
    shown = documents(readable_watch(encoding, recorded.body(name, encoding)))
    assert [each["type"] for each in shown] == [frame.type for frame in frames]
    for each, frame in zip(shown, frames, strict=True):
        if frame.status is None:
            peek = codec.peek(frame.raw)
            assert each["kind"] == frame.kind
            assert each["resourceVersion"] == str(peek.version)
            assert each.get("object", "").rpartition("/")[2] == peek.name
        else:
            assert (each["code"], each["message"]) == (frame.status.code, frame.status.message)


@pytest.mark.parametrize("encoding", Encoding)
def test_the_end_of_the_initial_events_is_shown(encoding: Encoding) -> None:
    codec = codec_for(encoding)
    body = codec.encode_bookmark("v1", "Service", 5) + codec.encode_bookmark(
        "v1", "Service", 6, INITIAL_EVENTS_ENDED
    )
    first, last = documents(readable_watch(encoding, body))
    assert "initialEventsEnd" not in first
    assert last["initialEventsEnd"] is True


@pytest.mark.parametrize("encoding", Encoding)
def test_a_truncated_watch_shows_its_complete_events(encoding: Encoding) -> None:
    event = codec_for(encoding).encode_event("ADDED", *recorded.single("services.single", encoding))
    text = readable_watch(encoding, event + event[:50])
    assert [each["type"] for each in documents(text) if each] == ["ADDED"]
    assert "the watch ended within an event, after 50 bytes of it" in text


@pytest.mark.parametrize("encoding", Encoding)
def test_a_malformed_event_does_not_hide_earlier_ones(encoding: Encoding) -> None:
    codec = codec_for(encoding)
    event = codec.encode_event("ADDED", *recorded.single("services.single", encoding))
    text = readable_watch(encoding, event * 9 + b"\xff" * 5_000)
    assert 0 < len([each for each in documents(text) if each]) <= 9
    assert text.splitlines()[-1].startswith("# ")


@pytest.mark.parametrize("encoding", Encoding)
def test_events_of_a_long_watch_are_abbreviated_and_bounded(encoding: Encoding) -> None:
    codec = codec_for(encoding)
    event = codec.encode_event("MODIFIED", *recorded.single("services.single", encoding))
    text = readable_watch(encoding, event * (LINES + 2) + codec.encode_error(expired("too old")))
    *shown, nothing = documents(text)
    assert nothing is None
    assert len(shown) == LINES
    assert set(shown[0]) == {"type", "kind", "apiVersion", "object", "resourceVersion", "bytes"}
    assert "# and 3 more events" in text


VALUE = "dG9wLXNlY3JldA=="
SECRETS: list[tuple[str, dict[str, Any]]] = [
    ("Secret", {"data": {"k": VALUE}}),
    ("Secret", {"stringData": {"k": VALUE}}),
    ("Secret", {"data": VALUE}),
    ("Secret", {"metadata": {"annotations": {LAST_APPLIED: VALUE}}}),
    ("PartialObjectMetadata", {"metadata": {"annotations": {LAST_APPLIED: VALUE}}}),
    ("Table", {"rows": [{"object": {"metadata": {"annotations": {LAST_APPLIED: VALUE}}}}]}),
    ("Table", {"rows": [{"object": {"kind": "Secret", "data": {"k": VALUE}}}]}),  # ?includeObject=Object
]
TOKENS: list[tuple[str, dict[str, Any]]] = [
    ("TokenRequest", {"status": {"token": VALUE, "expirationTimestamp": "later"}}),
    ("TokenReview", {"spec": {"token": VALUE}}),
]


@pytest.mark.parametrize(("kind", "tree"), [*SECRETS, *TOKENS])
def test_values_of_a_secret_are_not_shown(kind: str, tree: dict[str, Any]) -> None:
    shown = json.dumps(masked(kind, tree))
    assert VALUE not in shown
    assert "(hidden, 16 characters)" in shown


@pytest.mark.parametrize(("kind", "tree"), SECRETS)
def test_secret_values_are_shown_on_request(kind: str, tree: dict[str, Any]) -> None:
    assert masked(kind, tree, visible=Visible(secrets=True)) == tree


@pytest.mark.parametrize(("kind", "tree"), TOKENS)
def test_tokens_are_never_shown(kind: str, tree: dict[str, Any]) -> None:
    assert VALUE not in json.dumps(masked(kind, tree, visible=Visible(secrets=True)))


@pytest.mark.parametrize(
    ("kind", "tree"),
    [
        ("ConfigMap", {"data": {"k": "v"}}),
        ("Secret", {"metadata": {"name": "s"}, "type": "Opaque"}),
        ("TokenRequest", {"status": "odd"}),
        ("TokenReview", {}),
    ],
)
def test_other_fields_are_shown_unchanged(kind: str, tree: dict[str, Any]) -> None:
    assert masked(kind, tree) == tree
