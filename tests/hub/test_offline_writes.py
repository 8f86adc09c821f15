"""Writes in an outage: each row of the table in `docs/offline.md`, and the cloud's state afterwards."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.real import RealCloud
from tests.cloud.rest import Answer, RestError
from tests.hub.support.outage import JSON, PROTOBUF, Outage
from tests.hub.support.streams import Seen, watching

STRATEGIC = "application/strategic-merge-patch+json"
NODES = "/api/v1/nodes"
NODES_WRITE = pytest.mark.since(36, "nodes may write events of events.k8s.io")


@pytest.fixture
def node(real_cloud: RealCloud, outage: Outage) -> str:
    """Return the path of the hub's own node."""
    path = f"{NODES}/{outage.hub.node}"
    try:
        real_cloud.admin.get(path)
    except RestError:
        status = {"conditions": [condition("Ready", "True"), condition("DiskPressure", "False")]}
        real_cloud.admin.post(NODES, {"metadata": {"name": outage.hub.node}})
        real_cloud.admin.patch(f"{path}/status", {"status": status})
    return path


def condition(kind: str, status: str, reason: str = "Test") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "lastHeartbeatTime": "2026-01-02T03:04:05Z"}


async def journal_has(outage: Outage, wanted: float) -> None:
    await asyncio.to_thread(outage.hub.wait_for_metric, "edgehub_journal_entries", wanted, 20)


@pytest.mark.parametrize("encoding", [JSON, PROTOBUF])
async def test_a_status_is_merged_served_and_replayed_to_the_cloud(
    outage: Outage, real_cloud: RealCloud, node: str, encoding: str
) -> None:
    """Strategic-merge, merge and JSON patches and a PUT, on the node's own copy, in both encodings."""

    def has(number: int, seen: list[Seen]) -> bool:
        return len(seen) == number

    def media_type(answer: Answer) -> str:
        return answer.headers["Content-Type"].partition(";")[0]

    def single(answer: Answer) -> ApiObject:
        codec = codec_for(Encoding(media_type(answer)))
        return decode_object(codec.encoding, *codec.decode_single(answer.body))

    async def patched(path: str, patch: Any, accept: str = JSON, kind: str = STRATEGIC) -> Answer:
        """Return the response to a PATCH of a status."""
        return await outage.ask(f"{path}/status", accept, method="PATCH", body=patch, content_type=kind)

    def reasons(node: Any) -> dict[str, str]:
        """Return the reasons of a Node's conditions, by type."""
        return {each["type"]: each["reason"] for each in node["status"]["conditions"]}

    form = Encoding(encoding)
    own: dict[str, Any] = {"component": "kubelet", "encoding": form}
    own["fieldSelector"] = f"metadata.name={outage.hub.node}"
    async with watching(outage.hub.url, NODES, resourceVersion="0", **own) as events:
        version = (await events.first("ADDED", outage.hub.node)).object.version
        async with outage.away():
            patches = [
                (STRATEGIC, {"status": {"conditions": [condition("Ready", "True", "Strategic")]}}),
                ("application/merge-patch+json", {"status": {"phase": "Running"}}),
                (
                    "application/json-patch+json",
                    [{"op": "add", "path": "/status/volumesInUse", "value": ["v1"]}],
                ),
            ]
            for number, (kind, patch) in enumerate(patches, len(events.seen) + 1):
                answer = await patched(node, patch, encoding, kind)
                assert (answer.status, media_type(answer)) == (200, encoding), answer.body
                seen = await events.until(partial(has, number))
                assert (seen[-1].type, seen[-1].object.version) == ("MODIFIED", version)
            put = await asyncio.to_thread(real_cloud.admin.get, node)
            put["status"]["conditions"] = [condition("Ready", "True", "Put"), condition("Other", "True")]
            put["status"]["volumesInUse"] = ["v1", "v2"]
            assert (await outage.ask(f"{node}/status", encoding, method="PUT", body=put)).status == 200
            obj = single(await outage.ask(node, encoding))
            assert obj.version == version
            conditions = obj.fields.child("status").children("conditions")
            assert {each.text("type"): each.text("reason") for each in conditions} == {
                "Ready": "Put",
                "Other": "Test",
            }
            assert outage.hub.metric("edgehub_journal_entries") == 1
        await journal_has(outage, 0)
        after = await asyncio.to_thread(real_cloud.admin.get, node)
        assert reasons(after) == {"Ready": "Put", "Other": "Test"}
        assert after["status"]["volumesInUse"] == ["v1", "v2"]
        newest = int(after["metadata"]["resourceVersion"])
        await events.until(lambda seen: seen[-1].object.version == newest)
        assert {each.type for each in events.seen[1:]} == {"MODIFIED"}


@pytest.mark.parametrize("group", ["/api/v1", pytest.param("/apis/events.k8s.io/v1", marks=NODES_WRITE)])
async def test_events_are_accepted_and_replayed(
    outage: Outage, real_cloud: RealCloud, namespace: str, group: str
) -> None:
    def event(name: str) -> dict[str, Any]:
        about = {"kind": "Pod", "namespace": namespace, "name": "p"}
        metadata = {"name": name, "namespace": namespace}
        if group == "/api/v1":
            return {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": metadata,
                "involvedObject": about,
                "reason": "Test",
            }
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": metadata,
            "regarding": about,
            "reason": "Test",
            "action": "Testing",
            "type": "Normal",
            "eventTime": "2026-01-02T03:04:05.000000Z",
            "reportingController": "test/kubelet",
            "reportingInstance": "test",
        }

    events = f"{group}/namespaces/{namespace}/events"
    for name in ("before", "expired"):
        known = event(name)
        assert (await outage.ask(events, method="POST", body=known)).status == 201
    async with outage.away():
        # As after an hour, when the event has expired, which the hub cannot know.
        await asyncio.to_thread(real_cloud.admin.delete, f"{events}/expired")
        made = await outage.ask(events, method="POST", body=event("during"))
        assert (made.status, made.json()["metadata"]["name"]) == (201, "during")
        series = {"series": {"count": 5, "lastObservedTime": "2026-01-02T03:05:05.000000Z"}}
        for name in ("before", "expired", "during"):
            answer = await outage.ask(f"{events}/{name}", method="PATCH", body=series, content_type=STRATEGIC)
            assert (answer.status, answer.json()["metadata"]["name"]) == (200, name)
        assert (
            await outage.ask(events, method="POST", body={"kind": "Pod", "apiVersion": "v1"})
        ).status == 400
        await journal_has(outage, 6)  # each patch after the event itself, in case the event has expired
    await journal_has(outage, 0)
    for name in ("before", "expired", "during"):
        found = await asyncio.to_thread(real_cloud.admin.get, f"{events}/{name}")
        assert found["series"]["count"] == 5
