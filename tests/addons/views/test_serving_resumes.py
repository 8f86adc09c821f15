"""Clients whose watches end at any moment lose no event: each resumes from the last version that it was sent."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress

from kube.store.watcher import Watcher
from kube.wire.codec import WatchFrame
from tests.addons.support.hub_parts import HubParts, name_of
from tests.addons.support.observed import until
from tests.addons.support.samples import SERVICES, service
from tests.cloud.scriptable import ScriptableCloud

CLIENTS = 20
CREATES = 1000
ENDS = 300
WATCH_LIST = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


class Client:
    """What client-go keeps of its watches: the names that it was sent, and the last version."""

    def __init__(self, parts: HubParts) -> None:
        self.names: set[str] = set()
        self.version = ""
        self.watches = 0
        self._parts = parts

    async def run(self) -> None:
        query = WATCH_LIST
        while True:
            async with self._parts.watch(f"{SERVICES}?{query}") as watch:
                self.watches += 1
                with suppress(EOFError):
                    while True:
                        self._take(await watch.next())
            query = f"watch=true&allowWatchBookmarks=true&resourceVersion={self.version}"

    def _take(self, frame: WatchFrame) -> None:
        assert frame.status is None, "a watch that ended in order resumes"
        self.version = json.loads(frame.raw)["metadata"]["resourceVersion"]
        if frame.type != "BOOKMARK":
            self.names.add(name_of(frame))


async def test_no_event_is_lost_when_watches_end(parts: HubParts, cloud: ScriptableCloud) -> None:
    """The last bookmark once carried the view's version, not the client's: what lay between was never sent."""
    choose = random.Random(11)
    clients = [Client(parts) for _ in range(CLIENTS)]
    tasks = [asyncio.create_task(client.run()) for client in clients]
    await until(lambda: all(client.watches for client in clients))
    ends = set(choose.sample(range(CREATES), ENDS))
    for number in range(CREATES):
        cloud.store.create(service(f"at-{number}"))
        if number in ends and (watchers := _watchers(parts)):
            choose.choice(watchers).end()
        if not number % 7:
            await asyncio.sleep(0)
    wanted = {f"at-{number}" for number in range(CREATES)}
    await until(lambda: _names(parts) == wanted, 30)
    try:
        await until(lambda: all(client.names == wanted for client in clients), 10)
    except TimeoutError:
        lost = {number: sorted(wanted - client.names) for number, client in enumerate(clients)}
        raise AssertionError(
            f"never sent: { {number: names for number, names in lost.items() if names} }"
        ) from None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(client.watches for client in clients) >= CLIENTS + ENDS // 2


def _watchers(parts: HubParts) -> list[Watcher]:
    views = [viewing.view for source in parts.sources for viewing in source.views.values()]
    return sorted((watcher for view in views for watcher in view.watchers), key=id)


def _names(parts: HubParts) -> set[str]:
    return {item.key[1] for source in parts.sources for item in source.store}
