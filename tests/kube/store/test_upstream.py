"""A reflector that reads from the best of several servers, and goes on at once where one fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kube.http.client import ApiResponse, Client, Switched, Unreachable, WatchStream
from kube.store.store import Store
from kube.store.upstream import Upstream
from tests.cloud.scriptable import ScriptableCloud
from tests.kube.support.reflecting import LISTS, WATCHES, reflecting, until


class Failing:
    """Has a watch switched after its first piece, and hands everything on to a client."""

    is_up = True

    def __init__(self, client: Client) -> None:
        self.client = client
        self.switches = 0

    async def request(self, method: str, path: str, **how: Any) -> ApiResponse:
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


def service(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}


async def test_a_switched_watch_resumes_from_its_version_without_a_delay_or_a_list() -> None:
    store = Store()
    async with ScriptableCloud() as cloud, reflecting(cloud) as start:
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


async def test_a_reflector_asks_again_when_another_server_is_better() -> None:
    store = Store()
    async with ScriptableCloud() as cloud, reflecting(cloud) as start:
        reflector = start(store)
        await until(reflector, store, lambda: reflector.watches == 1 and store.complete)
        await asyncio.sleep(0)
        reflector.switch()
        await until(reflector, store, lambda: reflector.watches > 1)
        assert reflector.lists == 1


def _keys(store: Store) -> set[tuple[str, str]]:
    return {item.key for item in store}
