"""Requests that the node answers when the cloud is gone, on a small cloud that the test can take away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from addons.answers import Answers
from addons.backed import Backed
from addons.caller import Caller, Lending, Listener
from addons.copies import Copies
from addons.exchange import TICKET_HEADER, Exchange
from addons.health import Cloud, ServerHealth
from addons.journal import Journal
from addons.kept_objects import KeptObjects
from addons.offline_writes import OfflineWrites
from addons.origin import Origin
from addons.registration import Registration
from addons.replay import Replay
from addons.reviews import Reviews
from addons.routing import Kind, Route
from addons.rule_table import parse_rules
from addons.serving import Serving
from addons.settings import parse_server
from addons.sources import Sources
from addons.status_writes import StatusWrites
from addons.tokens import Tokens
from kube.client import Client, Unreachable, WholeAnswer, new_session
from kube.disk import Disk
from kube.disk_writer import DiskWriter
from kube.pulse import Pulse
from kube.request import parse_request

OBJECT = "/api/v1/namespaces/a/secrets/s"


class FakeCloud(Client):
    """Answers what it is told to; `None` is no answer, "hub" an error of the hub's own."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        super().__init__(session, "http://127.0.0.1:1", {})
        self.says: list[tuple[int, bytes] | str | None] = []
        self.asked = 0

    async def whole(self, *_args: object, **_named: object) -> WholeAnswer:
        self.asked += 1
        said = self.says.pop(0)
        if said is None:
            raise Unreachable("gone")
        if isinstance(said, str):
            return WholeAnswer(502, CIMultiDictProxy(CIMultiDict()), b"the hub's own error")
        headers = CIMultiDict({"x-edgehub-answered": "yes", "Content-Type": "text/plain", "X-Own": "1"})
        return WholeAnswer(said[0], CIMultiDictProxy(headers), said[1])


class Node:
    """The parts that answer, and a client of them."""

    def __init__(self, folder: Path) -> None:
        self.session = new_session()
        self.cloud = FakeCloud(self.session)
        self.health = ServerHealth(parse_server("http://127.0.0.1:1"))
        self.copies = Copies(Disk(folder / "cache"), DiskWriter())
        self.sources = Sources(lambda _: self.cloud, lambda *_: None, 300, self.copies)
        reviews = Reviews(lambda _: self.cloud)
        serving = Serving(self.sources, reviews, lambda: parse_rules(None), 1)
        objects, answers, journal = KeptObjects(self.sources, 1), Answers(self.copies), Journal(self.copies)
        status = StatusWrites(objects, answers, journal, self.cloud)
        servers = Cloud([self.health], "priority")
        replay = Replay(journal, self.cloud, lambda: servers.is_up, Pulse(), status.refused)
        writes = OfflineWrites(status, Tokens(answers), Registration(objects, answers), journal, replay)
        self.backed = Backed("n1", self.cloud, servers, reviews, objects, answers, writes)
        self.origin = Origin({Kind.VIEW: serving, Kind.BACKED: self.backed})

    async def get(self, target: str = OBJECT, caller: Caller = Caller(Lending.HUB)) -> tuple[int, bytes, str]:
        exchange = Exchange(parse_request("GET", target), "kubelet", Listener.PLAIN, None, caller)
        exchange.route = Route(Kind.BACKED, "test")
        headers = {TICKET_HEADER: self.origin.ticket(exchange)}
        host, port = self.origin.address
        async with self.session.get(f"http://{host}:{port}{target}", headers=headers) as answer:
            return answer.status, await answer.read(), answer.headers.get("x-edgehub-answered", "")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path)
    await made.copies.open()
    await made.origin.start()
    yield made
    made.sources.close()
    made.copies.close()
    await made.session.close()
    assert made.origin._runner is not None
    await made.origin._runner.cleanup()
    made.origin.close()


@pytest.mark.parametrize("code", [200, 404, 409, 429, 500, 503])
async def test_what_the_cloud_says_is_the_answer(node: Node, code: int) -> None:
    node.cloud.says = [(code, b"said")]
    assert await node.get() == (code, b"said", "")
    assert node.cloud.asked == 1


async def test_no_answer_is_asked_for_again_and_then_the_nodes_own_is_given(node: Node) -> None:
    node.cloud.says = [(200, b"seen"), None, "hub", None]
    await node.get()
    assert await node.get() == (200, b"seen", "")
    assert node.cloud.asked == 4


async def test_without_a_cloud_nobody_is_asked(node: Node) -> None:
    node.cloud.says = [(200, b"seen")]
    await node.get()
    node.health.failed("gone")
    assert await node.get(f"{OBJECT}?resourceVersion=0&timeout=10s") == (200, b"seen", "")
    code, body, _ = await node.get(OBJECT + "-other")
    assert (code, b"no copy of secrets" in body) == (503, True)
    assert node.cloud.asked == 1


async def test_only_a_200_is_kept(node: Node) -> None:
    node.cloud.says = [(404, b"not there")]
    await node.get()
    node.health.failed("gone")
    assert (await node.get())[0] == 503


async def test_a_page_is_not_kept(node: Node) -> None:
    node.cloud.says = [(200, b"a page")]
    assert (await node.get("/api/v1/secrets?limit=5"))[0] == 200
    node.health.failed("gone")
    assert (await node.get("/api/v1/secrets"))[0] == 503
