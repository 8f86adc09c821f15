"""Lists and watches of a shared source: from a leader, from the next leader, and from the cloud."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from addons.link.servers import Server
from addons.pool.peer_reader import PeerReader
from addons.pool.peers.peer import PeerHub
from kube.errors import StatusError, expired, forbidden, too_large_version, unavailable
from kube.http.client import Switched, Unreachable
from kube.reflector.list_pages import Malformed
from kube.requests.request_info import ResourceType
from tests.addons.support.refusals import refuses
from tests.addons.support.scripted_client import Asked, ScriptedClient

SERVICES = ResourceType("", "v1", "services")
PATH = SERVICES.path()


def leader(node: str) -> PeerHub:
    return PeerHub.at(Server("https", f"10.0.0.{ord(node) - 96}", 10269, node))


class Leaders:
    """A chooser that returns leaders a and b in this order, then the cloud."""

    def __init__(self) -> None:
        self.order = [leader("a"), leader("b")]
        self.failures: list[str] = []
        self.read: list[str] = []
        self.cloud_is_up = True

    @property
    def has_leader(self) -> bool:
        return bool(self.order)

    is_alone = False

    async def server(self, reader: PeerReader, *, resumes: bool) -> PeerHub | None:
        usable = [each for each in self.order if not each.failure]
        return next((each for each in usable if not resumes or reader.may_resume(each)), None)

    def can_bypass(self, reader: PeerReader) -> bool:
        return self.cloud_is_up or any(reader.may_resume(each) for each in self.order)

    def leave(self, peer: PeerHub, why: str) -> None:
        peer.failed(why, 0.0)
        self.failures.append(peer.node)

    def reads(self, _reader: PeerReader, server: str) -> None:
        self.read.append(server)


class Scene:
    """A reader at version 7, and each server's response: an error, or any value for success."""

    def __init__(self, **errors: Exception) -> None:
        self.chooser = Leaders()
        self.errors = errors
        self.version = 7
        self.behind = ""
        """A leader that accepts each watch although it has not reached the requested version."""
        self.client = ScriptedClient(self._answer)
        self.reader = PeerReader(SERVICES, self.client, self.chooser, lambda: self.version)
        self.reader.peer = self.chooser.order[0]  # the cloud was asked for the store's list

    def _answer(self, asked: Asked) -> Any:
        name = next((each.node for each in self.chooser.order if str(each.server) == asked.server), "cloud")
        if name in self.errors:
            raise self.errors[name]
        if name == self.behind and asked.method == "GET":
            raise too_large_version(self.version, self.version - 1)
        return _pieces(name) if asked.method == "WATCH" else {"from": name}

    async def list(self, **query: str) -> bytes:
        answer = await self.reader.request("GET", PATH, query={"limit": "500", **query}, accept="")
        return answer.body

    async def watch(self, error: Exception | None = None) -> bytes:
        """Return the first piece of a watch; `error` is raised while it is read."""
        async with self.reader.watch(PATH, query={"resourceVersion": "7"}, accept="", timeout=9.0) as stream:
            async for piece in stream.chunks:
                if error is not None:
                    raise error
                return piece
        raise AssertionError("no piece came")

    async def followed(self) -> bytes:
        """Like `watch`, through a reflector: a new server must first verify its history."""
        try:
            return await self.watch()
        except Switched:
            assert await self.reader.leaves_cloud()
            return await self.watch()


async def _pieces(name: str) -> AsyncIterator[bytes]:
    yield name.encode()


async def test_a_list_from_a_leader_is_one_page_and_not_older_than_the_store() -> None:
    scene = Scene()
    assert await scene.list() == b'{"from":"a"}'
    assert scene.client.asked[0].query == {"resourceVersion": "7", "resourceVersionMatch": "NotOlderThan"}


FAULTS = [Unreachable("refused"), unavailable("starting"), forbidden("not you"), expired("too old")]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failed_list_is_read_from_the_next_leader_and_then_from_the_cloud(fault: Exception) -> None:
    scene = Scene(a=fault)
    assert await scene.list() == b'{"from":"b"}'
    scene = Scene(a=fault, b=fault)
    assert await scene.list() == b'{"from":"cloud"}'
    assert scene.client.asked[-1].query == {"limit": "500"}
    assert scene.chooser.read == ["a", "b", "cloud"]


async def test_the_next_page_of_a_list_is_read_from_the_same_server() -> None:
    scene = Scene()
    assert await scene.list(**{"continue": "more"}) == b'{"from":"cloud"}'


async def test_the_clouds_refusal_is_raised_to_the_source() -> None:
    scene = Scene(a=Unreachable("refused"), b=Unreachable("refused"), cloud=forbidden("no"))
    with pytest.raises(StatusError):
        await scene.list()


@pytest.mark.parametrize("fault", FAULTS[:3])
async def test_a_watch_that_a_leader_refuses_opens_at_the_next_server(fault: Exception) -> None:
    assert await Scene(a=fault).followed() == b"b"
    with pytest.raises(Switched):
        await Scene(a=fault, b=fault).watch()


async def test_a_yurthub_leader_behind_the_requested_version_is_left() -> None:
    """A YurtHub accepts a watch from a future version, and sends nothing."""
    scene = Scene()
    scene.behind = "a"
    assert await scene.followed() == b"b"
    assert scene.chooser.failures == ["a"]


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        *((fault, ["a"]) for fault in (Unreachable("broke off"), unavailable("ends"), forbidden("no"))),
        (Malformed("?"), ["a"]),
        (expired("too old"), []),
    ],
)
async def test_a_watch_that_ends_with_an_error_continues_at_another_server_at_once(
    fault: Exception, failed: list[str]
) -> None:
    """A 410 in the stream does not count as a failure of the leader."""
    scene = Scene()
    with pytest.raises(Switched):
        await scene.watch(fault)
    assert scene.chooser.failures == failed
    assert await scene.followed() == b"b"


async def test_a_leader_with_a_short_history_is_skipped_until_the_store_has_advanced() -> None:
    scene = Scene(a=expired("too old"))
    assert await scene.followed() == b"b"
    assert not scene.chooser.failures
    scene.errors.clear()
    assert await scene.followed() == b"b"
    scene.version = 8
    assert await scene.followed() == b"a"


async def test_a_leader_is_watched_only_after_its_history_is_verified() -> None:
    """It may know of a restore that the leader which listed did not know of."""
    scene = Scene()
    assert await scene.list() == b'{"from":"a"}'
    scene.chooser.order.reverse()
    with pytest.raises(Switched):
        await scene.watch()
    assert [asked.method for asked in scene.client.asked] == ["GET"], "no watch is opened"
    assert await scene.reader.leaves_cloud(), "the caller has the proof made"
    assert await scene.watch() == b"b"


async def test_a_source_follows_the_leader_that_it_listed_from() -> None:
    scene = Scene(a=expired("too old"))
    assert await scene.followed() == b"b"
    scene.errors.clear()
    assert await scene.list() == b'{"from":"a"}'
    assert await scene.watch() == b"a"


async def test_object_names_verify_the_history_of_the_next_server() -> None:
    scene = Scene(a=expired("too old"))
    assert await scene.followed() == b"b"
    scene.errors.clear()
    named = await scene.reader.request("GET", PATH, query={}, accept="", resumes=True)
    assert (named.body, scene.reader.resumes) == (b'{"from":"b"}', True)
    assert await scene.list() == b'{"from":"a"}'
    assert not scene.reader.resumes


async def test_a_source_lists_again_if_no_peer_has_a_longer_history() -> None:
    scene = Scene(a=expired("too old"), b=expired("too old"))
    scene.chooser.cloud_is_up = False
    with refuses(410):
        await scene.followed()
    scene.errors.clear()
    assert await scene.list() == b'{"from":"a"}'


async def test_the_history_of_the_cloud_is_verified_after_a_leader() -> None:
    """The leader's versions may be from before a restore of the cloud, or invented."""
    scene = Scene()
    assert await scene.watch() == b"a"
    scene.chooser.order.clear()
    for _ in range(2):
        with pytest.raises(Switched):
            await scene.watch()
    assert not await scene.reader.leaves_cloud(), "the caller has the proof made"
    assert await scene.watch() == b"cloud"


async def test_after_a_list_from_the_cloud_no_verification_is_needed() -> None:
    scene = Scene()
    assert await scene.watch() == b"a"
    scene.chooser.order.clear()
    assert await scene.list() == b'{"from":"cloud"}'
    assert await scene.watch() == b"cloud"


async def test_a_reader_that_never_left_the_cloud_returns_without_verification() -> None:
    scene = Scene()
    scene.chooser.order.clear()
    assert await scene.watch() == b"cloud"


@pytest.mark.parametrize(("server", "is_elsewhere"), [("", True), ("a", True), ("cloud", False)])
def test_the_reader_reports_if_it_reads_from_the_cloud(server: str, is_elsewhere: bool) -> None:
    reader = Scene().reader
    reader.peer, reader.server = None, server
    assert reader.is_elsewhere is is_elsewhere


async def test_one_list_after_a_restore_may_be_older_than_the_store() -> None:
    scene = Scene()
    scene.reader.forget_version()
    assert await scene.list() == b'{"from":"a"}'
    assert await scene.list() == b'{"from":"a"}'
    assert [each.query["resourceVersion"] for each in scene.client.asked] == ["0", "7"]
