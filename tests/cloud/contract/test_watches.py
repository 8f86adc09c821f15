"""Watches: where they start, their events and bookmarks, and how they end."""

from __future__ import annotations

import pytest

from kube.json_type import Json
from tests.cloud.caller import Caller
from tests.cloud.contract.objects import config_map, names, settle, summary, version

WATCH_LIST = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}
END = {"k8s.io/initial-events-end": "true"}


@pytest.fixture
async def two(caller: Caller, config_maps: str) -> str:
    """Create two ConfigMaps, a and b, labelled "ours"."""
    for name in ("a", "b"):
        written = await caller.post(config_maps, config_map(name, {"ours": ""}))
    await settle(caller, config_maps, written)
    return config_maps


async def version_of(caller: Caller, path: str) -> str:
    return str(version(await caller.get(path, limit="1")))


async def test_a_watch_sends_each_change_in_order(caller: Caller, two: str) -> None:
    start = await version_of(caller, two)
    async with caller.watch(two, resourceVersion=start) as stream:
        assert stream.headers["Content-Type"] == "application/json"
        created = await caller.post(two, config_map("c"))
        patched = await caller.patch(f"{two}/c", {"data": {"k": "v"}})
        await caller.delete(f"{two}/c")
        added, modified, deleted = await stream.take(3)
    assert (added["type"], added["object"]) == ("ADDED", created)
    assert (modified["type"], modified["object"]) == ("MODIFIED", patched)
    assert (deleted["type"], deleted["object"]["data"]) == ("DELETED", {"k": "v"})
    assert version(created) < version(patched) < version(deleted["object"])


async def test_a_watch_resumes_after_any_version(caller: Caller, two: str) -> None:
    created = await caller.post(two, config_map("c"))
    await caller.patch(f"{two}/c", {"data": {"k": "v"}})
    await caller.delete(f"{two}/c")
    async with caller.watch(two, resourceVersion=str(version(created))) as stream:
        assert [summary(event) for event in await stream.take(2)] == [("MODIFIED", "c"), ("DELETED", "c")]


@pytest.mark.parametrize("start", ["", "0"])
async def test_a_watch_without_a_version_starts_with_the_current_objects(
    caller: Caller, two: str, start: str
) -> None:
    async with caller.watch(two, resourceVersion=start, labelSelector="ours") as stream:
        assert sorted(summary(event) for event in await stream.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await caller.delete(f"{two}/a")
        assert summary(await stream.next()) == ("DELETED", "a")


async def test_a_watchlist_marks_the_end_of_the_initial_events(caller: Caller, two: str) -> None:
    async with caller.watch(two, labelSelector="ours", **WATCH_LIST) as stream:
        events = await stream.until("BOOKMARK")
        assert sorted(map(summary, events[:-1])) == [("ADDED", "a"), ("ADDED", "b")]
        mark = events[-1]["object"]
        assert (mark["kind"], mark["apiVersion"], mark["metadata"]["annotations"]) == ("ConfigMap", "v1", END)
        assert version(mark) >= max(version(event["object"]) for event in events[:-1])
        await caller.delete(f"{two}/a")
        assert summary(await stream.next()) == ("DELETED", "a")


async def test_an_empty_watchlist_has_a_marker_too(caller: Caller, config_maps: str) -> None:
    async with caller.watch(config_maps, fieldSelector="metadata.name=none", **WATCH_LIST) as stream:
        assert (await stream.next())["object"]["metadata"]["annotations"] == END


async def test_a_watchlist_without_bookmarks_has_no_marker(caller: Caller, two: str) -> None:
    asked = {**WATCH_LIST, "allowWatchBookmarks": "false", "labelSelector": "ours", "timeoutSeconds": "1"}
    async with caller.watch(two, **asked) as stream:
        assert sorted(map(summary, await stream.rest())) == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_watchlist_may_decline_the_initial_events(caller: Caller, two: str) -> None:
    asked = {**WATCH_LIST, "sendInitialEvents": "false", "resourceVersion": await version_of(caller, two)}
    async with caller.watch(two, **asked) as stream:
        await caller.delete(f"{two}/a")
        assert summary(await stream.next()) == ("DELETED", "a")


async def test_objects_that_enter_or_leave_a_selector_are_added_or_deleted(caller: Caller, two: str) -> None:
    start = await version_of(caller, two)
    async with caller.watch(two, resourceVersion=start, labelSelector="chosen=yes") as stream:
        await caller.patch(f"{two}/b", {"data": {"k": "unseen"}})
        await caller.patch(f"{two}/a", {"data": {"k": "before"}})
        entered = await caller.patch(f"{two}/a", {"metadata": {"labels": {"chosen": "yes"}}})
        await caller.patch(f"{two}/a", {"data": {"k": "inside"}})
        left = await caller.patch(
            f"{two}/a", {"metadata": {"labels": {"chosen": "no"}}, "data": {"k": "after"}}
        )
        added, modified, deleted = await stream.take(3)
    assert (added["type"], added["object"]) == ("ADDED", entered)
    assert summary(modified) == ("MODIFIED", "a")
    assert summary(deleted) == ("DELETED", "a")
    assert deleted["object"]["data"] == {"k": "inside"}
    assert deleted["object"]["metadata"]["labels"]["chosen"] == "yes"
    assert version(deleted["object"]) == version(left)


async def test_a_field_selector_watches_one_name(caller: Caller, two: str) -> None:
    start = await version_of(caller, two)
    async with caller.watch(two, resourceVersion=start, fieldSelector="metadata.name=b") as stream:
        await caller.delete(f"{two}/a")
        await caller.delete(f"{two}/b")
        assert summary(await stream.next()) == ("DELETED", "b")


@pytest.mark.parametrize("path", ["/api/v1/watch/namespaces/{}/configmaps", "/api/v1/watch/configmaps"])
async def test_the_deprecated_watch_paths_are_served(
    caller: Caller, two: str, namespace: str, path: str
) -> None:
    start = await version_of(caller, two)
    async with caller.watch(path.format(namespace), resourceVersion=start) as stream:
        await caller.delete(f"{two}/a")
        assert summary(await stream.next()) == ("DELETED", "a")


async def test_a_watch_ends_at_its_timeout_after_a_bookmark(caller: Caller, two: str) -> None:
    start = await version_of(caller, two)
    asked = {"resourceVersion": start, "timeoutSeconds": "3", "allowWatchBookmarks": "true"}
    async with caller.watch(two, fieldSelector="metadata.name=none", **asked) as stream:
        unseen = await caller.patch(f"{two}/a", {"data": {"k": "v"}})
        events = await stream.rest()
    assert {event["type"] for event in events} == {"BOOKMARK"}
    assert events[-1]["object"]["kind"] == "ConfigMap"
    assert version(events[-1]["object"]) >= version(unseen)
    assert "annotations" not in events[-1]["object"]["metadata"]


@pytest.mark.parametrize("version", ["", "0"])
async def test_a_watch_with_a_negative_timeout_ends_at_once(caller: Caller, two: str, version: str) -> None:
    """A real server may first send a part of the state, or etcd's time-out."""
    async with caller.watch(two, resourceVersion=version, timeoutSeconds="-1") as stream:
        assert {event["type"] for event in await stream.rest()} <= {"ADDED", "ERROR"}


async def test_a_version_that_is_too_old_is_an_error_event(caller: Caller, things: str) -> None:
    async with caller.watch(things, resourceVersion="1") as stream:
        events = await stream.rest()
    assert [event["type"] for event in events] == ["ERROR"]
    status: Json = events[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


async def test_a_watch_from_a_future_version_is_silent(caller: Caller, two: str) -> None:
    future = str(int(await version_of(caller, two)) + 10_000)
    async with caller.watch(two, resourceVersion=future, timeoutSeconds="1") as stream:
        await caller.delete(f"{two}/a")
        assert await stream.rest() == []


async def test_a_watchlist_from_a_future_version_is_an_error_event(caller: Caller, two: str) -> None:
    future = str(int(await version_of(caller, two)) + 10_000)
    async with caller.watch(two, resourceVersion=future, **WATCH_LIST) as stream:
        events = await stream.rest()
    status = events[0]["object"]
    assert (events[0]["type"], status["code"], status["reason"]) == ("ERROR", 504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_a_metadata_watch_has_metadata_only(caller: Caller, two: str) -> None:
    accept = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
    async with caller.watch(two, accept, fieldSelector="metadata.name=a", **WATCH_LIST) as stream:
        added, mark = await stream.take(2)
    assert (added["object"]["kind"], added["object"]["metadata"]["name"]) == ("PartialObjectMetadata", "a")
    assert set(added["object"]) == {"kind", "apiVersion", "metadata"}
    assert (mark["object"]["kind"], mark["object"]["metadata"]["annotations"]) == (
        "PartialObjectMetadata",
        END,
    )


async def test_a_watch_from_a_lists_version_misses_and_repeats_nothing(caller: Caller, two: str) -> None:
    """A reflector relies on this: it lists, then watches from the list's version."""
    answer = await caller.get(two, labelSelector="ours")
    await caller.post(two, config_map("c", {"ours": ""}))
    async with caller.watch(two, resourceVersion=str(version(answer)), labelSelector="ours") as stream:
        await caller.delete(f"{two}/a")
        events = await stream.take(2)
    known = set(names(answer)) | {name for kind, name in map(summary, events) if kind == "ADDED"}
    known -= {name for kind, name in map(summary, events) if kind == "DELETED"}
    assert known == {"b", "c"}
    assert [summary(event) for event in events] == [("ADDED", "c"), ("DELETED", "a")]
