"""The cloud's answers are torn, cut short or malformed: the copy stays as it was, on disk too, and catches up later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from addons.offline.copies import source_name
from kube.disk.copy_rows import read_copy
from kube.disk.database import Disk
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.fixtures import OpenLink
from tests.cloud.link import Link
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import (
    Fault,
    MalformedBody,
    MalformedFrame,
    Rule,
    TornFrame,
    TruncatedBody,
    WatchFault,
)
from tests.cloud.scriptable.request_log import matching
from tests.hub.support.process import Hub
from tests.hub.support.streams import listed, watching

SERVICES = "/api/v1/services"
ERRORS = "edgehub_source_errors_total"
FAULTS = {
    "torn frame": (TornFrame(), "broken off"),
    "torn second frame": (TornFrame(after=1), "broken off"),
    "malformed frame": (MalformedFrame(), "malformed"),
    "malformed second frame": (MalformedFrame(after=1), "malformed"),
    "truncated list": (TruncatedBody(), "broken off"),
    "malformed list": (MalformedBody(), "malformed"),
}
"""The fault, and the reason that is counted."""


@pytest.fixture
async def linked_to_script(
    cloud: ScriptableCloud, link: OpenLink, tmp_path: Path
) -> AsyncIterator[tuple[Hub, Link]]:
    """A hub behind a link to the test's own cloud."""
    url = urlsplit(cloud.url)
    assert url.port is not None
    opened = link(url.hostname or "", url.port)
    made = Hub(tmp_path, f"http://{opened.host}:{opened.port}")
    await asyncio.to_thread(made.start)
    yield made, opened
    await asyncio.to_thread(made.stop)


def make(cloud: ScriptableCloud, name: str) -> None:
    spec = {"ports": [{"port": 80}]}
    cloud.store.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})


def had(cloud: ScriptableCloud, version: int) -> dict[str, int]:
    """The cloud's services at a version."""
    objects = cloud.store.storage.collection("services").at(version)
    return {name: stored.version for (_, name), stored in objects.items()}


def copied(hub: Hub, encoding: Encoding) -> tuple[int, dict[str, int]]:
    """Version and services of the copy of a hub that is not running."""
    disk = Disk(hub.state / "cache")
    disk.open()
    read = read_copy(disk, source_name("", ListWatch(ResourceType("", "v1", "services"), encoding=encoding)))
    disk.close()
    assert read is not None
    peeks = [codec_for(encoding).peek(raw) for raw in read[1]]
    return read[0]["version"], {peek.name: peek.version for peek in peeks}


async def test_the_copy_stays_and_catches_up(
    cloud: ScriptableCloud, linked_to_script: tuple[Hub, Link]
) -> None:
    (hub, link), encoding = linked_to_script, Encoding.PROTOBUF

    async def shown() -> set[str]:
        got = await listed(hub.url, SERVICES, component="kube-proxy", encoding=encoding, resourceVersion="0")
        return set(got)

    expected: set[str] = set()
    for name in FAULTS:
        make(cloud, f"old {name}".replace(" ", "-"))
        expected.add(f"old {name}".replace(" ", "-"))
    assert await shown() == expected
    async with watching(hub.url, SERVICES, component="kube-proxy", encoding=encoding) as events:
        await events.until(lambda seen: len(seen) == len(FAULTS))
        for fault, (broken, reason) in FAULTS.items():
            before, counted = len(events.seen), await _errors(hub, reason)
            old, new, newer = (f"{what} {fault}".replace(" ", "-") for what in ("old", "new", "newer"))
            # The cloud lives in this loop: it serves nothing before the next await.
            link.cut()
            make(cloud, new)
            make(cloud, newer)
            cloud.store.delete("services", old, "default")
            if not isinstance(broken, WatchFault):
                cloud.store.compact()  # so that the source must list anew
            rule = befall(cloud, broken)
            before_it, after_it = expected, expected - {old} | {new, newer}
            async with asyncio.timeout(30):
                # Each question shortens the delay after the last failure. Half of it is never shown: all that was
                # there is, until all that is there now is.
                while (seen := await shown()) != after_it or not rule.met.is_set():
                    assert before_it - {old} <= seen <= before_it | {new, newer}, fault
            expected = after_it
            rule.lift()
            await events.first("DELETED", old)
            await events.first("ADDED", newer)
            assert not events.ended, fault
            kinds = [(each.type, each.name) for each in events.seen[before:] if each.type != "BOOKMARK"]
            assert sorted(kinds) == [("ADDED", new), ("ADDED", newer), ("DELETED", old)]
            # What the fault had brought before may be seen before the hub has read the fault itself.
            async with asyncio.timeout(30):
                while await _errors(hub, reason) <= counted:  # noqa: ASYNC110 - another process cannot tell
                    await asyncio.sleep(0.05)
            async with asyncio.timeout(30):
                while not await asyncio.to_thread(_is_watching, hub):
                    await shown()
    await asyncio.to_thread(hub.stop)
    version, objects = copied(hub, encoding)
    assert objects == had(cloud, version)
    assert set(objects) == expected


async def _errors(hub: Hub, reason: str) -> float:
    return await asyncio.to_thread(hub.metric, ERRORS, resource="services", reason=reason)


def _is_watching(hub: Hub) -> bool:
    sources = hub.debug("sources")
    assert isinstance(sources, list)
    return all(each["state"] == "watching" for each in sources if each["path"] == SERVICES)


def befall(cloud: ScriptableCloud, fault: Fault, times: int | None = 2) -> Rule:
    verb = "watch" if isinstance(fault, WatchFault) else "list"
    return cloud.faults.add(fault, times=times, when=matching(verb=verb, resource="services"))
