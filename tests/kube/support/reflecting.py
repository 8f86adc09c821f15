"""Runs reflectors with the scriptable cloud, for the tests of the reflector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

from kube.concurrency.backoff import Backoff
from kube.http.client import Client
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Reflector
from kube.reflector.state import State
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.request_log import LoggedRequest, matching
from tests.cloud.sessions import new_session
from tests.support.objects import obj

SERVICES = ResourceType("", "v1", "services")
LISTS = matching(verb="list", resource="services", full_objects=True)
WATCHES = matching(verb="watch", resource="services")
PATIENCE = 10.0
"""Seconds to wait for events that take milliseconds."""

type Start = Callable[..., Reflector]


@asynccontextmanager
async def reflecting(cloud: ScriptableCloud) -> AsyncIterator[Start]:
    """Run reflectors of the cloud, by default of its services, with very short retry delays."""
    tasks: list[asyncio.Task[None]] = []
    session = new_session()

    def run(
        store: Store,
        *,
        url: str = "",
        encoding: Encoding = Encoding.JSON,
        backoff: Backoff | None = None,
        **list_watch: Any,
    ) -> Reflector:
        asked = ListWatch(list_watch.pop("type", SERVICES), encoding=encoding, **list_watch)
        client = Client(session, url or cloud.url, {})
        reflector = Reflector(client, asked, store, backoff or Backoff(0.005, 0.01, jitter=lambda: 0.0))
        tasks.append(asyncio.create_task(reflector.run()))
        return reflector

    yield run
    cloud.faults.clear()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await session.close()


async def until(reflector: Reflector, store: Store, condition: Callable[[], bool]) -> None:
    """Check the condition whenever the store or the reflector changes."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            moves = [
                asyncio.ensure_future(store.next_update()),
                asyncio.ensure_future(reflector.changed.wait()),
            ]
            try:
                await asyncio.wait(moves, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for move in moves:
                    move.cancel()


def service(name: str, namespace: str = "default", text: str = "", **labels: str) -> dict[str, Any]:
    spec = {"ports": [{"port": 80}], "type": "ClusterIP"}
    return obj("Service", name, namespace, labels=labels, annotations={"text": text}, spec=spec)


def equal(store: Store, cloud: ScriptableCloud) -> bool:
    """Return True if the copy equals the cloud, version by version."""
    here = {item.key: str(item.version) for item in store}
    there = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): each["metadata"]["resourceVersion"]
        for each in cloud.store.list("services")
    }
    return store.complete and here == there


def copied(reflector: Reflector, store: Store, cloud: ScriptableCloud) -> Callable[[], bool]:
    return lambda: equal(store, cloud) and reflector.state is State.WATCHING


def queries(cloud: ScriptableCloud, which: Callable[[LoggedRequest], bool]) -> list[dict[str, str]]:
    return [dict(parse_qsl(request.query)) for request in cloud.requests.where(which)]
