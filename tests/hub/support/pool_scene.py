"""Clients of followers, and checks of their events while leaders fail."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from kube.wire.encoding import Encoding
from tests.cloud.real import RealCloud
from tests.hub.support.objects import endpoint_slice, slices
from tests.hub.support.pool_site import SLICES, Member, Site
from tests.hub.support.streams import Events, watching

EACH = 0.1
"""Seconds between two changes by `changing`."""

_numbers = itertools.count(1)


def leads(leader: Member) -> bool:
    """Return True if a hub leads and has a cloud."""
    found = leader.pool()
    return found["role"] == "leader" and not found["ageSeconds"]


def leader_of(follower: Member) -> str:
    """Return the leader that a node prefers."""
    return str(follower.pool()["follows"][0]["node"])


def one_more(cloud: RealCloud) -> str:
    """Create a slice; return its name."""
    name = f"pool-{next(_numbers)}"
    cloud.admin.post(slices("default"), endpoint_slice(name, "web", "n1"))
    return name


@asynccontextmanager
async def followed(pool: Site, follower: Member) -> AsyncIterator[tuple[Events, Callable[[], str]]]:
    """Open a watch of kube-proxy at a follower; return it with a function that creates a slice and returns its name."""

    def make() -> str:
        return one_more(pool.cloud)

    path = slices("default")
    async with watching(
        follower.hub.url, path, component="kube-proxy", encoding=Encoding.PROTOBUF, allowWatchBookmarks="true"
    ) as events:
        await events.first("ADDED", await asyncio.to_thread(make))
        yield events, make


def assert_uninterrupted(events: Events) -> None:
    """Check that the watch is open and sent no slice twice."""
    seen = [each.name for each in events.seen if each.type == "ADDED" and each.name.startswith("pool-")]
    assert sorted(seen) == sorted(set(seen))
    assert not events.ended


async def goes_on(follower: Member, events: Events, make: Callable[[], str], lists: int) -> None:
    """Check that the client gets a change of the cloud once, that the follower lists nothing, and that the client's
    watch stays open."""
    name = await asyncio.to_thread(make)
    await events.first("ADDED", name)
    assert_uninterrupted(events)
    assert await asyncio.to_thread(follower.lists, SLICES) == lists


@contextmanager
def changing(cloud: RealCloud) -> Iterator[dict[str, float]]:
    """Create slices one after the other; record the time of each."""
    made: dict[str, float] = {}
    stop = threading.Event()

    def change() -> None:
        while not stop.wait(EACH):
            name = one_more(cloud)
            made[name] = time.monotonic()

    thread = threading.Thread(target=change, name="changes")
    thread.start()
    try:
        yield made
    finally:
        stop.set()
        thread.join()


async def has_each_once(events: Events, made: dict[str, float]) -> float:
    """Return when a client has got each slice once, with the longest delay in seconds."""
    await events.until(lambda seen: set(made) <= {each.name for each in seen if each.type == "ADDED"})
    assert_uninterrupted(events)
    counted = Counter(each.name for each in events.seen if each.name in made)
    assert set(counted.values()) == {1}
    return max(each.at - made[each.name] for each in events.seen if each.name in made)
