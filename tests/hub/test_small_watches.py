"""Requests of a quiet node on the real control plane: watches of few objects without bookmarks, and statuses sent
once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.audit import AuditEvent
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub, started
from tests.hub.support.site import hub_before
from tests.hub.support.streams import Seen, watching
from tests.support.polling import eventually


@pytest.fixture
def own_cloud(tmp_path: Path, cloud_programs: dict[str, Path]) -> Iterator[RealCloud]:
    with RealCloud(tmp_path / "cloud", cloud_programs) as cloud:
        yield cloud


async def test_a_small_watch_has_one_bookmark_and_resumes_after_a_server_restart(
    own_cloud: RealCloud, tmp_path: Path
) -> None:
    drivers = "/apis/storage.k8s.io/v1/csidrivers"

    def make(cloud: RealCloud, name: str) -> None:
        cloud.admin.post(drivers, {"metadata": {"name": name}, "spec": {"attachRequired": False}})

    node = "edge-small"

    def asked(cloud: RealCloud, mark: int, verb: str) -> list[AuditEvent]:
        """Return the hub's requests for the kind since a mark."""
        return [
            event
            for event in cloud.audit(mark)
            if event.user == f"system:node:{node}"
            and (event.verb, event.stage) == (verb, "RequestReceived")
            and event.uri.startswith(drivers)
        ]

    def goes_on_without_bookmarks() -> bool:
        return any("allowWatchBookmarks" not in event.uri for event in asked(own_cloud, 0, "watch"))

    hub = await asyncio.to_thread(hub_before, own_cloud, tmp_path / "hub", node)
    await asyncio.to_thread(make, own_cloud, "first")
    async with started(hub), watching(hub.url, drivers, component="kubelet", resourceVersion="0") as events:
        await events.first("ADDED", "first")
        # The first bookmark arrives after one or two minutes.
        await asyncio.to_thread(
            eventually, goes_on_without_bookmarks, "the watch without bookmarks", 240, 0.5
        )
        await asyncio.to_thread(make, own_cloud, "second")
        await events.first("ADDED", "second")
        mark = own_cloud.audit_mark()
        await asyncio.to_thread(own_cloud.stop_apiserver, crash=True)
        await asyncio.to_thread(own_cloud.start_apiserver)
        await asyncio.to_thread(make, own_cloud, "third")
        await events.first("ADDED", "third")
        seen = [(each.type, each.name) for each in events.seen]
        assert seen == [("ADDED", name) for name in ("first", "second", "third")]
        # Names verify the history. The new server's watch cache may lack earlier versions, which takes one more list.
        assert len(asked(own_cloud, mark, "list")) <= 2


async def test_a_status_of_kubelet_is_transferred_only_once(
    linked: tuple[Hub, Link], real_cloud: RealCloud
) -> None:
    """The patch's response does not repeat the event's data, and equals the cloud's state."""
    nodes = "/api/v1/nodes"

    async def report(hub: Hub, beat: str) -> ApiObject:
        """Write a heartbeat like kubelet; return the node in the response."""
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": beat}
        status = {"$setElementOrder/conditions": [{"type": "Ready"}], "conditions": [ready]}
        headers = {
            "User-Agent": "kubelet/v1",
            "Content-Type": "application/strategic-merge-patch+json",
            "Accept": f"{Encoding.PROTOBUF},{Encoding.JSON}",
        }
        async with (
            aiohttp.ClientSession() as session,
            session.patch(
                f"{hub.url}{nodes}/{hub.node}/status?timeout=10s",
                data=json.dumps({"status": status}),
                headers=headers,
            ) as answer,
        ):
            assert (answer.status, answer.content_type) == (200, Encoding.PROTOBUF)
            return decode_object(
                Encoding.PROTOBUF, *codec_for(Encoding.PROTOBUF).decode_single(await answer.read())
            )

    def ends_with(version: int, seen: list[Seen]) -> bool:
        return seen[-1].object.version >= version

    (hub, link), large = linked, "x" * 20_000
    # In the status, as the hub's own watch of its Node, for the pool, has only the metadata.
    filler = {"type": "Filler", "status": "False", "message": large}
    node = {"metadata": {"name": hub.node}, "status": {"conditions": [filler]}}
    await asyncio.to_thread(real_cloud.admin.post, nodes, node)
    # The first may come before the hub's own watch of the node is open, whose event the answer is made of; and on a
    # busy machine an event may take longer than the hub waits for it, or the hub may still read what it reads first.
    reports = 4
    async with (
        started(hub),
        watching(
            *(hub.url, nodes),
            component="kubelet",
            encoding=Encoding.PROTOBUF,
            resourceVersion="0",
            fieldSelector=f"metadata.name={hub.node}",
        ) as events,
    ):
        await events.first("ADDED", hub.node)
        crossed = []
        for second in range(reports):
            before = link.traffic.down
            answer = await report(hub, f"2026-01-01T00:00:0{second}Z")
            await events.until(partial(ends_with, answer.version))
            crossed.append(link.traffic.down - before)
            there = await asyncio.to_thread(real_cloud.admin.get, f"{nodes}/{hub.node}")
            assert answer.version == int(there["metadata"]["resourceVersion"])
            conditions = answer.fields.child("status").children("conditions")
            assert large in [each.text("message") for each in conditions]
        assert len(large) < min(crossed) < 1.5 * len(large), crossed
