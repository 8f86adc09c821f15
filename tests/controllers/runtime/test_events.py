"""Events are written once, cut to size, and never stop a controller's work."""

from __future__ import annotations

from typing import Any

from controllers.runtime.events import LONGEST_MESSAGE, REMEMBERED, EventRecorder, ObjectReference
from controllers.runtime.write_client import WriteClient
from kube.requests.request_info import ResourceType

NODE = ObjectReference("v1", "Node", "", "n", "uid")
GRID = ObjectReference("superedge.io/v1", "ServiceGrid", "ns", "g", "uid")


class Written(WriteClient):
    """An API that keeps what is created, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.objects: list[dict[str, Any]] = []
        self._error = error

    async def create(self, resource: ResourceType, obj: dict[str, Any]) -> dict[str, Any]:
        if self._error:
            raise self._error
        assert resource.resource == "events"
        self.objects.append(obj)
        return obj


async def test_an_event_says_who_and_what() -> None:
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


async def test_objects_without_namespace_have_theirs_in_default() -> None:
    api = Written()
    await EventRecorder(api, "manager").normal(NODE, "A", "b")
    assert (api.objects[0]["metadata"]["namespace"], api.objects[0]["type"]) == ("default", "Normal")


async def test_the_same_is_not_said_twice() -> None:
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


async def test_a_long_message_is_cut_and_memory_is_bounded() -> None:
    api = Written()
    events = EventRecorder(api, "manager")
    await events.warning(NODE, "A", "x" * 300_000)
    assert len(api.objects[0]["message"]) == LONGEST_MESSAGE
    for number in range(REMEMBERED):
        await events.warning(NODE, "A", str(number))
    # The oldest is forgotten by now, and may be said again.
    await events.warning(NODE, "A", "x" * 300_000)
    assert len(api.objects) == REMEMBERED + 2
