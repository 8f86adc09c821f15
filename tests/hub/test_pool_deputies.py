"""The only leader of a pool fails: a deputy reads from the cloud, and the others read from the deputy."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

from tests.cloud.real import RealCloud
from tests.hub.support.pool_scene import changing, followed, goes_on, has_each_once, leads
from tests.hub.support.pool_site import SLICES, Member, Site
from tests.hub.support.streams import Events
from tests.support.polling import eventually


@pytest.fixture(scope="module")
def site(real_cloud: RealCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run three hubs of one pool. The first leads; the others reach it through a link."""
    made = Site(real_cloud, tmp_path_factory.mktemp("site"), "dock", 33)
    made.prepare(1, 2, 3)
    leader = made.members[0]
    leader.lay_path(made.port)
    made.lead(leader)
    try:
        made.start()
        yield made
    finally:
        made.close()


class Scene:
    """The pool, with a client at each follower."""

    def __init__(self, site: Site, clients: dict[str, Events], make: Callable[[], str]) -> None:
        """`clients` are by their followers' nodes; `make` creates one slice, whose name it returns."""
        self.site, self.clients, self.make = site, clients, make
        self.leader, *self.followers = site.members
        self.deputy = next(each for each in self.followers if not _deputies_of(each))
        self.other = next(each for each in self.followers if each is not self.deputy)
        self.lists = {each.name: each.lists(SLICES) for each in self.followers}
        self.mark = site.cloud.audit_mark()

    def served_by(self) -> dict[str, str]:
        return {each.name: each.server(SLICES) for each in self.followers}

    def reads(self) -> Counter[tuple[str, str]]:
        """Return the lists and watches of slices that followers have started at the cloud, by node and verb. A list of
        one object reads the cloud's version."""
        nodes = {f"system:node:{each.name}": each.name for each in self.followers}
        return Counter(
            (nodes[each.user], each.verb)
            for each in self.site.cloud.audit(self.mark)
            if each.stage == "RequestReceived" and each.user in nodes
            if each.about is not None and each.about.resource == "endpointslices"
            if "limit=1" not in urlsplit(each.uri).query.split("&")
        )

    async def until(self, check: Callable[[], object], what: str) -> None:
        await asyncio.to_thread(eventually, check, what)

    async def until_served_by(self, deputy: str, other: str) -> None:
        wanted = {self.deputy.name: deputy, self.other.name: other}
        await self.until(lambda: self.served_by() == wanted, f"slices come from {wanted}")

    async def all_go_on(self) -> None:
        for each in self.followers:
            await goes_on(each, self.clients[each.name], self.make, self.lists[each.name])


@pytest.fixture
async def scene(site: Site) -> AsyncIterator[Scene]:
    leader, *followers = site.members
    await asyncio.to_thread(_mend, site)
    async with AsyncExitStack() as stack:
        clients: dict[str, Events] = {}
        for each in followers:
            clients[each.name], make = await stack.enter_async_context(followed(site, each))
        await asyncio.to_thread(
            eventually, lambda: _is_settled(leader, followers), "a deputy is known to all"
        )
        yield Scene(site, clients, make)


def _is_settled(leader: Member, followers: list[Member]) -> bool:
    """Return True if all read from the leader, both followers are deputies, and one of them knows that the other
    precedes it."""
    return (
        leads(leader)
        and all(each.server(SLICES) == leader.name and each.pool()["isDeputy"] for each in followers)
        and any(map(_deputies_of, followers))
    )


def _deputies_of(follower: Member) -> list[str]:
    """Return the deputies that precede a follower."""
    return [each["node"] for each in follower.pool()["follows"] if each["isDeputy"]]


def _mend(site: Site) -> None:
    for each in site.members:
        each.link.carry()
        if each.path is not None:
            each.path.carry()
        if not each.hub.is_running:
            each.hub.start()


def kill(leader: Member) -> None:
    leader.hub.kill()


def swallow(leader: Member) -> None:
    """Make the leader a black hole: it runs, but no byte reaches or leaves it, not even the close of a connection."""
    assert leader.path is not None
    leader.path.black_hole()


@pytest.mark.parametrize("fault", [kill, swallow])
async def test_only_a_deputy_reads_from_the_cloud_when_the_only_leader_fails(
    scene: Scene, fault: Callable[[Member], None]
) -> None:
    """No event is lost or repeated, and nothing is listed again. The cloud gets one more watch, the deputy's, and on a
    busy machine one from the other follower, if the deputy answers a probe late."""
    # Changes made before a fault, and after all clients have moved to another server.
    changes = 5
    with changing(scene.site.cloud) as made:
        await scene.until(lambda: len(made) >= changes, "changes")
        await asyncio.to_thread(fault, scene.leader)
        await scene.until_served_by("cloud", scene.deputy.name)
        enough = len(made) + changes
        await scene.until(lambda: len(made) >= enough, "more changes")
    for name, events in scene.clients.items():
        longest = await has_each_once(events, made)
        print(f"{fault.__name__}: of {len(made)} changes one took {longest:.2f} s to {name}")
    print(f"{fault.__name__}: read from the cloud {scene.reads()}")
    assert (scene.deputy.name, "watch") in scene.reads()
    # The cloud's history is verified by names to equal the leader's.
    assert all(count == 1 for (_, verb), count in scene.reads().items() if verb == "list")
    await asyncio.to_thread(_mend, scene.site)
    await scene.until_served_by(scene.leader.name, scene.leader.name)
    await scene.all_go_on()
