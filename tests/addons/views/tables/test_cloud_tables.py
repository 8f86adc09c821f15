"""Lists and watches as Tables of a kind whose columns only the cloud knows, on a scriptable cloud."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import orjson
import pytest

from addons.requests.answers import ClientStream
from addons.requests.object_read import parse_read
from addons.views.tables.cloud_tables import CloudTable
from kube.errors import unavailable
from kube.http.client import ApiResponse, Client
from kube.json_type import Json
from kube.requests.request_info import parse_request
from kube.wire.json_fields import write_json
from tests.support.objects import obj

WIDGETS = "/apis/acme.example/v1/widgets"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TYPE = "acme.example/v1", "Widget"
COLUMNS = [{"name": "Name"}, {"name": "Tier"}, {"name": "Age"}]


def widget(name: str, version: int, tier: str = "gold") -> Json:
    return obj(TYPE[1], name, "default", version, apiVersion=TYPE[0], spec={"tier": tier})


class Printer:
    """A cloud that renders its objects as Tables."""

    def __init__(self, *objects: Json) -> None:
        self.objects = {each["metadata"]["name"]: each for each in objects}
        self.asked: list[tuple[str, str]] = []
        self.is_up = True

    async def request(self, _method: str, path: str, *, query: Mapping[str, str], **_: Any) -> ApiResponse:
        fields = query.get("fieldSelector", "")
        self.asked.append((path, fields))
        if not self.is_up:
            raise unavailable("the cloud is away")
        name = fields.partition("=")[2]
        rows = [
            {"cells": [each["metadata"]["name"], each["spec"]["tier"], "1s"], "object": each}
            for each in self.objects.values()
            if name in ("", each["metadata"]["name"])
        ]
        body = write_json({"kind": "Table", "columnDefinitions": COLUMNS, "rows": rows})
        return ApiResponse("application/json", body)


class Written(ClientStream):
    """The stream to the client."""

    try_write = None

    def __init__(self) -> None:
        self.text = b""

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Check that the head does not mention Tables."""

    async def write(self, data: bytes) -> None:
        self.text += data

    async def write_all(self, pieces: Iterable[bytes]) -> None:
        for each in pieces:
            await self.write(each)

    @property
    def events(self) -> list[tuple[str, Any, list[Any]]]:
        found = [orjson.loads(line) for line in self.text.splitlines()]
        return [
            (each["type"], each["object"]["columnDefinitions"], each["object"]["rows"][0]["cells"][:2])
            for each in found
        ]


def printed(cloud: Printer) -> CloudTable:
    read = parse_read(parse_request("GET", f"{WIDGETS}?watch=true"), TABLE)
    return CloudTable(cast(Client, cloud), lambda: cloud.is_up, read, "v1")


def event(event_type: str, obj: Json) -> bytes:
    return write_json({"type": event_type, "object": obj}) + b"\n"


async def test_a_changed_object_gets_new_cells_and_a_deleted_one_its_last_cells() -> None:
    cloud, written = Printer(widget("a", 1)), Written()
    table = printed(cloud)
    await table.learn(1)
    stream = table.stream(written, *TYPE)
    cloud.objects["a"] = widget("a", 2, "tin")
    events = event("ADDED", widget("a", 1)) + event("MODIFIED", widget("a", 2, "tin"))
    for cut in (events[:30], events[30:], event("DELETED", widget("a", 3, "tin"))):
        await stream.write(cut)
    assert written.events == [
        ("ADDED", COLUMNS, ["a", "gold"]),
        ("MODIFIED", None, ["a", "tin"]),
        ("DELETED", None, ["a", "tin"]),
    ]
    one = "/apis/acme.example/v1/namespaces/default/widgets"
    assert cloud.asked == [(WIDGETS, ""), (one, "metadata.name=a")], "the first is known by its version"
    assert not table._cells.has(widget("a", 2)), "nothing is kept of what is gone"


async def test_a_bookmark_is_a_table_and_an_error_is_not() -> None:
    table, written = printed(Printer()), Written()
    await table.learn(1)
    stream = table.stream(written, *TYPE)
    mark = {"metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}
    error = event("ERROR", {"kind": "Status", "code": 410})
    await stream.write_all([event("BOOKMARK", mark), error])
    first, last = written.text.splitlines()
    (row,) = orjson.loads(first)["object"]["rows"]
    assert (row["object"]["metadata"]["resourceVersion"], last + b"\n") == ("7", error)


@pytest.mark.parametrize("is_known_to_be_away", [True, False])
async def test_without_a_cloud_the_columns_are_name_and_age(is_known_to_be_away: bool) -> None:
    cloud, written = Printer(widget("a", 1)), Written()
    cloud.is_up = False
    read = parse_read(parse_request("GET", f"{WIDGETS}?watch=true"), TABLE)
    table = CloudTable(cast(Client, cloud), lambda: not is_known_to_be_away, read, "v1")
    await table.learn(1)
    await table.stream(written, *TYPE).write(event("ADDED", widget("a", 1)))
    ((_, columns, cells),) = written.events
    assert ([each["name"] for each in columns], cells[0]) == (["Name", "Age"], "a")
    assert len(cloud.asked) == (0 if is_known_to_be_away else 1)
