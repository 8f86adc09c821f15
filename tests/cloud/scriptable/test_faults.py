"""Each fault as a client meets it, and which requests meet it."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from tests.cloud.caller import Caller
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import (
    ExpiredWatch,
    MalformedBody,
    MalformedFrame,
    Refuse,
    Silence,
    StalledWatch,
    TornFrame,
    TruncatedBody,
)
from tests.cloud.scriptable.request_log import matching

SERVICES = "/api/v1/services"
WATCH_LIST = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


@pytest.fixture
def three(cloud: ScriptableCloud) -> ScriptableCloud:
    """The cloud with Services s0, s1 and s2."""
    for number in range(3):
        cloud.store.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{number}"}})
    return cloud


# -- any request -----------------------------------------------------------------------------------------------


async def test_silence_lasts_until_it_is_lifted(three: ScriptableCloud, caller: Caller) -> None:
    rule = three.faults.add(Silence())
    # By PATCH: aiohttp asks again by itself when an idempotent request loses its connection.
    asking = asyncio.create_task(caller.send("PATCH", f"{SERVICES}/s0"))
    await rule.met.wait()
    assert (await caller.send("GET", SERVICES)).status == 200
    assert not asking.done()
    rule.lift()
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await asking


# -- bodies ----------------------------------------------------------------------------------------------------


async def test_truncated_body(three: ScriptableCloud, caller: Caller) -> None:
    whole = await caller.send("GET", SERVICES)
    three.faults.add(TruncatedBody())
    with pytest.raises(aiohttp.ClientPayloadError, match="ContentLengthError"):
        await caller.send("GET", SERVICES)
    assert (await caller.send("GET", SERVICES)).body == whole.body


async def test_malformed_body_in_json(three: ScriptableCloud, caller: Caller) -> None:
    three.faults.add(MalformedBody())
    reply = await caller.send("GET", SERVICES)
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json")
    with pytest.raises(json.JSONDecodeError):
        reply.json()


# -- watches ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 2])
async def test_torn_frame(three: ScriptableCloud, caller: Caller, after: int) -> None:
    three.faults.add(TornFrame(after))
    async with caller.watch(SERVICES, **WATCH_LIST) as stream:
        await stream.take(after)
        with pytest.raises((aiohttp.ClientPayloadError, EOFError)):
            await stream.next()


async def test_malformed_frame(three: ScriptableCloud, caller: Caller) -> None:
    three.faults.add(MalformedFrame(1))
    async with caller.watch(SERVICES, **WATCH_LIST) as stream:
        assert (await stream.next())["type"] == "ADDED"
        with pytest.raises(json.JSONDecodeError):
            await stream.next()
        assert (await stream.next())["type"] == "ADDED"


async def test_stalled_watch_goes_on_when_lifted(three: ScriptableCloud, caller: Caller) -> None:
    rule = three.faults.add(StalledWatch(2))
    async with caller.watch(SERVICES, **WATCH_LIST) as stream:
        await stream.take(2)
        following = asyncio.create_task(stream.next())
        three.store.delete("services", "s0", "default")
        done, _ = await asyncio.wait([following], timeout=0.05)
        assert not done
        rule.lift()
        assert (await following)["type"] == "ADDED"
        assert [event["type"] for event in await stream.take(2)] == ["BOOKMARK", "DELETED"]


async def test_storm_of_expired_watches(three: ScriptableCloud, caller: Caller) -> None:
    rule = three.faults.add(ExpiredWatch(), times=3)
    for _ in range(3):
        async with caller.watch(SERVICES, resourceVersion=str(three.store.version)) as stream:
            events = await stream.rest()
        assert [(event["type"], event["object"]["code"]) for event in events] == [("ERROR", 410)]
    assert rule.used == 3
    async with caller.watch(SERVICES, **WATCH_LIST) as stream:
        assert (await stream.next())["type"] == "ADDED"


# -- versions --------------------------------------------------------------------------------------------------


async def test_compaction_expires_watches_and_pages(three: ScriptableCloud, caller: Caller) -> None:
    version = str(three.store.version)
    page = await caller.get(SERVICES, limit="1")
    three.store.delete("services", "s2", "default")
    three.store.compact()
    async with caller.watch(SERVICES, resourceVersion=version) as stream:
        assert [event["object"]["reason"] for event in await stream.rest()] == ["Expired"]
    query = {"limit": "1", "continue": page["metadata"]["continue"]}
    reply = await caller.send("GET", SERVICES, query=query)
    assert (reply.status, reply.json()["reason"]) == (410, "Expired")
    query = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    reply = await caller.send("GET", SERVICES, query=query)
    assert (reply.status, reply.json()["reason"]) == (410, "Expired")


async def test_a_restored_cluster_goes_back_in_versions(three: ScriptableCloud, caller: Caller) -> None:
    backup = three.store.snapshot()
    three.store.delete("services", "s0", "default")
    newest = three.store.version
    async with caller.watch(SERVICES, resourceVersion=str(newest)) as stream:
        three.store.restore(backup)
        assert await stream.rest() == []
    answer = await caller.get(SERVICES)
    assert [item["metadata"]["name"] for item in answer["items"]] == ["s0", "s1", "s2"]
    assert int(answer["metadata"]["resourceVersion"]) == newest - 1


# -- which requests --------------------------------------------------------------------------------------------


async def test_a_rule_befalls_whom_it_is_for(three: ScriptableCloud, caller: Caller) -> None:
    three.faults.add(Refuse(500), times=None, when=matching(resource="services", user_agent="kube-proxy/"))
    agent = {"User-Agent": "kube-proxy/v1.36.0"}
    assert (await caller.send("GET", SERVICES)).status == 200
    assert (await caller.send("GET", "/api/v1/nodes", headers=agent)).status == 200
    assert (await caller.send("GET", SERVICES, headers=agent)).status == 500
