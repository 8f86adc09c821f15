"""A reflector that reads from the best of several servers, and continues at once if one fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube.http.client import ApiResponse, Client, Switched, Unreachable, WatchStream
from kube.json_type import Json
from kube.reflector.reflector import EVENT_BATCH, LONG_EVENT
from kube.reflector.upstream import Upstream
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.codec_base import ListMeta
from kube.wire.encoding import Encoding
from tests.cloud.scriptable import ScriptableCloud
from tests.kube.support.reflecting import LISTS, WATCHES, Start, reflecting, service, until
from tests.support.objects import obj

JSON = codec_for(Encoding.JSON)


class Failing:
    """Switch the server of a watch after its first piece, and forward everything to a client."""

    is_up = is_shared = True

    def __init__(self, client: Client) -> None:
        self.client = client
        self.switches = 0
        self.may_be_older = False

    is_elsewhere = True

    async def leaves_cloud(self) -> bool:
        return self.is_elsewhere

    def forget_version(self) -> None:
        self.may_be_older = True

    async def request(self, method: str, path: str, *, resumes: bool = False, **how: Any) -> ApiResponse:
        return await self.client.request(method, path, **how)

    @asynccontextmanager
    async def watch(
        self, path: str, *, query: Mapping[str, str], accept: str, timeout: float, codings: str
    ) -> AsyncIterator[WatchStream]:
        async with self.client.watch(path, query=query, accept=accept, timeout=timeout) as stream:
            chunks = stream.chunks if self.switches else self._broken(stream.chunks)
            try:
                yield WatchStream(stream.content_type, chunks, stream.coding)
            except Unreachable as error:
                self.switches += 1
                raise Switched("the next server") from error

    async def _broken(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            yield chunk
            raise Unreachable("broke off")


async def test_a_switched_watch_resumes_from_its_version_without_a_delay_or_a_list(
    cloud: ScriptableCloud, start: Start
) -> None:
    store = Store()
    reflector = start(store)
    failing = Failing(reflector.client)
    upstream: Upstream = failing
    reflector.upstream = upstream
    await until(reflector, store, lambda: store.complete and bool(cloud.requests.where(WATCHES)))
    for name in ("one", "two"):
        cloud.store.create(service(name))
        await until(reflector, store, lambda name=name: ("default", name) in _keys(store))  # type: ignore[misc]  # the default binds the loop's value
    assert failing.switches == 1
    assert reflector.error is None
    assert len(cloud.requests.where(LISTS)) == 1


async def test_events_of_a_leader_are_not_compared_with_the_cloud(
    cloud: ScriptableCloud, start: Start
) -> None:
    store = Store()
    reflector = start(store)
    reflector.upstream = failing = Failing(reflector.client)
    await until(reflector, store, lambda: store.complete and bool(cloud.requests.where(WATCHES)))
    before = reflector.watches
    reflector.verify()
    await asyncio.sleep(0)
    cloud.store.create(service("one"))
    await until(reflector, store, lambda: ("default", "one") in _keys(store))
    assert reflector.watches > before
    assert (reflector.lists, failing.may_be_older) == (1, True)


async def test_a_copy_from_disk_is_listed_again_at_a_leader(cloud: ScriptableCloud, start: Start) -> None:
    store = Store()
    store.replace(JSON, "v1", "Service", 1, [])
    cloud.store.create(service("one"))
    reflector = start(store)
    reflector.upstream = Failing(reflector.client)
    await until(reflector, store, lambda: ("default", "one") in _keys(store))
    assert reflector.lists == 1


async def test_a_leaders_history_is_verified_for_a_copy_of_the_cloud_after_a_break(
    cloud: ScriptableCloud, start: Start
) -> None:
    """The leader may or may not know of a restore of the cloud meanwhile."""

    class NextLeader(Failing):
        """The cloud at first, and another server from the next request on."""

        is_elsewhere = False

        async def leaves_cloud(self) -> bool:
            return True

    store = Store()
    reflector = start(store)
    reflector.upstream = leader = NextLeader(reflector.client)
    await until(reflector, store, lambda: store.complete and bool(cloud.requests.where(WATCHES)))
    assert not leader.is_elsewhere
    reflector.verify()
    await asyncio.sleep(0)
    cloud.store.create(service("one"))
    await until(reflector, store, lambda: ("default", "one") in _keys(store))
    names = cloud.requests.where(lambda each: each.verb == "list" and not LISTS(each))
    assert (reflector.lists, len(names)) == (1, 1)


async def test_the_clouds_history_is_verified_first_after_a_leader(
    cloud: ScriptableCloud, start: Start
) -> None:
    class GoneLeader(Failing):
        """A server other than the cloud at first, which fails when the watch starts."""

        @asynccontextmanager
        async def watch(self, path: str, **how: Any) -> AsyncIterator[WatchStream]:
            if self.is_elsewhere:
                self.is_elsewhere = False
                raise Switched("switching from a leader to the cloud")
            async with self.client.watch(path, **how) as stream:
                yield stream

    store = Store()
    reflector = start(store)
    reflector.upstream = GoneLeader(reflector.client)
    await until(reflector, store, lambda: store.complete and bool(cloud.requests.where(WATCHES)))
    names = cloud.requests.where(lambda each: each.verb == "list" and not LISTS(each))
    assert (reflector.lists, len(names)) == (1, 1)


async def test_a_reflector_reopens_its_watch_when_another_server_is_better(
    cloud: ScriptableCloud, start: Start
) -> None:
    store = Store()
    reflector = start(store)
    await until(reflector, store, lambda: reflector.watches == 1 and store.complete)
    await asyncio.sleep(0)
    reflector.switch()
    await until(reflector, store, lambda: reflector.watches > 1)
    names = cloud.requests.where(lambda each: each.verb == "list" and not LISTS(each))
    assert (reflector.lists, len(names)) == (1, 1), "the other server proves its history"


def _keys(store: Store) -> set[tuple[str, str]]:
    return {item.key for item in store}


def listed(version: int) -> ApiResponse:
    """Return an empty list."""
    return ApiResponse(Encoding.JSON, bytes(JSON.encode_list("v1", "Service", ListMeta(version), [])))


class Bursting:
    """A cloud whose watch sends very many events in one packet, as a compressed watch may."""

    is_up = is_shared = True
    is_elsewhere = False

    def __init__(self, *events: Json) -> None:
        self._packet = b"".join(json.dumps(each).encode() + b"\n" for each in events)

    async def leaves_cloud(self) -> bool:
        return False

    def forget_version(self) -> None:
        """Do nothing: the server has one version."""

    async def request(self, *_: object, **__: object) -> ApiResponse:
        return listed(100)

    @asynccontextmanager
    async def watch(self, *_: object, **__: object) -> AsyncIterator[WatchStream]:
        yield WatchStream(Encoding.JSON, self._chunks())

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield self._packet
        await asyncio.Event().wait()


async def test_a_leader_behind_an_issued_version_verifies_nothing(
    cloud: ScriptableCloud, start: Start
) -> None:
    class Behind(Bursting):
        """A leader that is one version older at each list."""

        is_elsewhere = True

        def __init__(self) -> None:
            super().__init__()
            self.version = 100

        async def leaves_cloud(self) -> bool:
            return True

        async def request(self, *_: object, **__: object) -> ApiResponse:
            self.version -= 1
            return listed(self.version)

    store = Store()
    reflector = start(store)
    reflector.upstream = Behind()
    await until(reflector, store, lambda: store.complete and reflector.watches == 1)
    reflector.verify()
    await until(reflector, store, lambda: reflector.watches == 2)
    assert (store.version, store.former_version) == (97, 99)


def event(kind: str, version: int, **fields: str) -> Json:
    return {"type": kind, "object": obj("Service", "a", "", version, **fields)}


async def versions_seen(upstream: Bursting, last: int) -> set[int]:
    """Return the versions of a store that another task sees, until its reflector has applied the last one."""
    store, seen = Store(), set()
    async with ScriptableCloud() as cloud, reflecting(cloud) as start, asyncio.timeout(20):
        start(store).upstream = upstream
        while store.version < last:
            seen.add(store.version)
            await asyncio.sleep(0)
    return seen


async def test_callbacks_run_while_very_many_events_are_applied() -> None:
    last = 100 + 10 * EVENT_BATCH
    assert (
        len(await versions_seen(Bursting(*(event("BOOKMARK", at) for at in range(101, last + 1))), last))
        >= 10
    )


async def test_a_long_event_is_applied_unparsed_in_its_own_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def parse(text: bytes | memoryview) -> object:
        parsed.append(len(text))
        return json.loads(bytes(text))

    monkeypatch.setattr("kube.wire.json_fields.parse_json", parse)
    text = "x" * LONG_EVENT
    seen = await versions_seen(Bursting(*(event("MODIFIED", at, text=text) for at in range(101, 106))), 105)
    assert seen >= {101, 102, 103, 104}
    assert parsed == []
