"""Writes that require leadership, and Events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from controllers.runtime.connection import AccountSession, connect
from controllers.runtime.write_client import (
    LONGEST_MESSAGE,
    REMEMBERED,
    EventRecorder,
    NotLeading,
    ObjectReference,
    WriteClient,
    refuse_unless_leading,
)
from kube.errors import StatusError
from kube.http.client import Client
from kube.requests.request_info import ResourceType
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.sessions import new_session
from tests.controllers.support.plain_account import PlainAccount
from tests.support.objects import obj

CONFIG_MAPS = ResourceType("", "v1", "configmaps")
OBJECT = obj("ConfigMap", "a", "default", data={"x": "1"})


@pytest.fixture
async def cloud() -> AsyncIterator[ScriptableCloud]:
    async with ScriptableCloud() as started:
        yield started


@pytest.fixture
async def client(cloud: ScriptableCloud) -> AsyncIterator[Client]:
    async with new_session() as session:
        yield Client(session, cloud.url, {})


@pytest.fixture
def api(client: Client) -> WriteClient:
    return WriteClient(client, lambda: 10.0)


async def test_objects_are_created_changed_and_deleted(api: WriteClient) -> None:
    made = await api.create(CONFIG_MAPS, OBJECT)
    with pytest.raises(StatusError) as taken:
        await api.create(CONFIG_MAPS, OBJECT)
    assert taken.value.code == 409
    changed = await api.merge_patch(CONFIG_MAPS, "default", "a", {"data": {"x": None, "y": "2"}})
    assert changed["data"] == {"y": "2"}
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"z": "3"}}
    with pytest.raises(StatusError) as conflict:
        await api.merge_patch(CONFIG_MAPS, "default", "a", stale)
    assert conflict.value.code == 409
    await api.delete(CONFIG_MAPS, "default", "a", made["metadata"]["uid"])
    # Deleting an absent object succeeds.
    await api.delete(CONFIG_MAPS, "default", "a", made["metadata"]["uid"])


async def test_a_lease_lost_while_connecting_prevents_the_write(
    cloud: ScriptableCloud,
) -> None:
    left = iter([5.0, 0.0, 5.0, 5.0])

    def gate() -> float:
        return next(left)

    async with AccountSession(PlainAccount(cloud.url), refuse_unless_leading(gate)) as session:
        api = WriteClient(connect(session, "me"), gate)
        with pytest.raises(NotLeading):
            await api.create(CONFIG_MAPS, OBJECT)
        # The first write was not sent: the name is free.
        made = await api.create(CONFIG_MAPS, OBJECT)
    assert made["data"] == {"x": "1"}


async def test_a_client_without_the_lease_writes_nothing(client: Client) -> None:
    api = WriteClient(client, lambda: 0.0)
    for write in (
        api.create(CONFIG_MAPS, OBJECT),
        api.apply(CONFIG_MAPS, OBJECT),
        api.merge_patch(CONFIG_MAPS, "default", "a", {}),
        api.delete(CONFIG_MAPS, "default", "a", "u"),
    ):
        with pytest.raises(NotLeading):
            await write
    await EventRecorder(api, "test").warning(ObjectReference("v1", "Node", "", "n", "n"), "Reason", "message")
    with pytest.raises(StatusError) as missing:
        await WriteClient(client, lambda: 1.0).merge_patch(CONFIG_MAPS, "default", "a", {"data": {}})
    assert missing.value.code == 404


NODE = ObjectReference("v1", "Node", "", "n", "uid")
GRID = ObjectReference("superedge.io/v1", "ServiceGrid", "ns", "g", "uid")


class Written(WriteClient):
    """An API that stores created objects, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.objects: list[dict[str, Any]] = []
        self._error = error

    async def create(self, resource: ResourceType, obj: dict[str, Any]) -> dict[str, Any]:
        if self._error:
            raise self._error
        assert resource.resource == "events"
        self.objects.append(obj)
        return obj


async def test_an_event_has_its_object_reason_and_source() -> None:
    api = Written()
    await EventRecorder(api, "manager").warning(GRID, "Empty", "no key")
    [event] = api.objects
    assert event["metadata"]["namespace"] == "ns"
    assert event["involvedObject"] == {
        "apiVersion": "superedge.io/v1",
        "kind": "ServiceGrid",
        "namespace": "ns",
        "name": "g",
        "uid": "uid",
    }
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "Empty", "no key")
    assert event["source"] == {"component": "manager"}


async def test_events_of_cluster_scoped_objects_are_in_namespace_default() -> None:
    api = Written()
    await EventRecorder(api, "manager").normal(NODE, "A", "b")
    assert (api.objects[0]["metadata"]["namespace"], api.objects[0]["type"]) == ("default", "Normal")


async def test_each_line_of_a_message_is_logged_as_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "controllers.runtime.write_client"):
        await EventRecorder(Written(), "manager").warning(
            NODE, "InstallFailed", "no hub:\nport 10261 is taken"
        )
    assert [record.getMessage().rpartition(" InstallFailed: ")[2] for record in caplog.records] == [
        "no hub:",
        "port 10261 is taken",
    ]


async def test_an_equal_event_is_not_repeated() -> None:
    api = Written()
    events = EventRecorder(api, "manager")
    for reference, reason, message in [
        (NODE, "A", "b"),
        (NODE, "A", "b"),
        (NODE, "A", "c"),
        (NODE, "B", "b"),
        (GRID, "A", "b"),
    ]:
        await events.warning(reference, reason, message)
    assert len(api.objects) == 4


async def test_a_long_message_is_truncated_and_memory_is_bounded() -> None:
    api = Written()
    events = EventRecorder(api, "manager")
    await events.warning(NODE, "A", "x" * 300_000)
    assert len(api.objects[0]["message"]) == LONGEST_MESSAGE
    for number in range(REMEMBERED):
        await events.warning(NODE, "A", str(number))
    # The oldest event was evicted, so it may be sent again.
    await events.warning(NODE, "A", "x" * 300_000)
    assert len(api.objects) == REMEMBERED + 2
