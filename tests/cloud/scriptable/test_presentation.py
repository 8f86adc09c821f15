"""Bytes of objects, lists and events, where the contract tests do not look: caching, recorded objects, ages, tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from kube.json_type import Json
from kube.wire.encoding import Encoding
from kube.wire.negotiation import Representation
from tests.cloud.scriptable import wire
from tests.cloud.scriptable.lists import Page
from tests.cloud.scriptable.presentation import PARTIAL, TABLE, Presentation
from tests.cloud.scriptable.resources import Resource, ResourceTable
from tests.cloud.scriptable.storage import Stored
from tests.cloud.scriptable.watch import Event

RESOURCES = ResourceTable()
SERVICES, POOLS = RESOURCES.named("services"), RESOURCES.named("nodepools")
VALUE: Json = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "resourceVersion": "7"}}
JSON, PROTOBUF = Representation(Encoding.JSON), Representation(Encoding.PROTOBUF)


def test_an_item_is_encoded_once_for_each_form() -> None:
    stored = Stored(VALUE, 7)
    page = Page(7, [stored])
    for representation in (JSON, PROTOBUF, Representation(Encoding.JSON, PARTIAL)):
        presentation = Presentation(SERVICES, representation)
        assert presentation.page(page) == presentation.page(page)
    assert len(stored.encoded) == 3


def test_the_two_views_of_an_object_do_not_share_an_encoding() -> None:
    stored = Stored({"metadata": {"name": "s"}, "endpoints": [{"zone": "z"}]}, 7)
    bodies = {}
    for version in ("v1", "v1beta1"):
        resource = RESOURCES.at("discovery.k8s.io", version, "endpointslices")
        assert resource is not None
        bodies[version] = json.loads(Presentation(resource, JSON).page(Page(7, [stored])))
    assert bodies["v1"]["items"][0]["endpoints"] == [{"zone": "z"}]
    assert bodies["v1beta1"]["items"][0]["endpoints"] == [{"topology": {"topology.kubernetes.io/zone": "z"}}]


def test_a_recorded_object_is_shown_as_it_was_recorded() -> None:
    stored = Stored(VALUE, 7, lambda version: b"recorded at %d" % version)
    presentation = Presentation(SERVICES, PROTOBUF)
    assert presentation.page(Page(7, [stored])).endswith(b"\x12\x0drecorded at 7" + b"\x1a\x00\x22\x00")
    assert presentation.stored(stored) == wire.envelope("v1", "Service", b"recorded at 7")
    assert b"recorded" not in Presentation(SERVICES, JSON).stored(stored)


@pytest.mark.parametrize("resource", [SERVICES, POOLS])
def test_an_event_is_a_line(resource: Resource) -> None:
    event = Event("ADDED", 7, Stored(VALUE, 7))
    frame = Presentation(resource, JSON).event(event)
    assert frame.endswith(b"}\n")
    assert frame.count(b"\n") == 1
    assert json.loads(frame)["object"]["metadata"]["name"] == "s"


@pytest.mark.parametrize(
    ("seconds", "age"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (3 * 86400, "3d"), (-5, "0s")]
)
def test_the_age_in_a_table(seconds: int, age: str) -> None:
    created = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    value = {**VALUE, "metadata": {"name": "s", "creationTimestamp": created}}
    table = json.loads(Presentation(SERVICES, Representation(Encoding.JSON, TABLE)).single(value))
    assert table["rows"][0]["cells"] == ["s", age]


@pytest.mark.parametrize(
    ("include", "kind"), [("None", None), ("Metadata", "PartialObjectMetadata"), ("Object", "Service")]
)
def test_what_a_row_includes(include: str, kind: str | None) -> None:
    representation = Representation(Encoding.JSON, TABLE)
    table = json.loads(Presentation(SERVICES, representation, include_object=include).single(VALUE))
    assert table["rows"][0].get("object", {}).get("kind") == kind
    assert table["rows"][0]["cells"] == ["s", "<unknown>"]
