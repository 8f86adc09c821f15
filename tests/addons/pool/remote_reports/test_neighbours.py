"""The hubs from which a hub reads other kubelets' reports, when it does, and silent or flooding hubs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import orjson
import pytest

from addons.filters.inputs import PodReport
from addons.inputs.pod_reports import FRESH
from addons.link.health import Cloud
from addons.link.servers import Server
from addons.pool.peers.peer_probes import Peers
from addons.pool.remote_reports.neighbours import Neighbours
from addons.pool.remote_reports.report_objects import MAX_REPORT_BYTES, POD_REPORTS, report_object
from addons.telemetry import metrics
from kube.concurrency.notifier import Notifier
from kube.errors import not_found
from kube.http.client import RawResponse, Unreachable
from kube.peers import LeaderHub
from tests.addons.inputs.test_filter_inputs import Cluster
from tests.addons.inputs.test_kubelet_reports import slices
from tests.addons.pool.remote_reports.test_remote_pod_reports import CUT_AT, KEY, REPORT, on_n2
from tests.addons.support.observed import until, value_of
from tests.addons.support.scripted_client import Asked, ScriptedClient

pytestmark = pytest.mark.looptime

HUBS = (LeaderHub("n2", "10.0.0.2"), LeaderHub("n3", "10.0.0.3"))
PATIENCE = 300.0
"""Seconds of virtual time."""


class ReportingPeers:
    """The peer ports of the pool's hubs: the report of each, by address; a missing hub does not respond."""

    def __init__(self) -> None:
        self.said = {"10.0.0.2": (1, REPORT)}
        """The last report of each, with its version."""
        self.news: dict[str, asyncio.Queue[bytes]] = {}
        self.is_mute = False
        """True if probes get no response."""

    def say(self, report: PodReport, host: str = "10.0.0.2") -> None:
        version = self.said[host][0] + 1
        self.said[host] = (version, report)
        if host in self.news:
            self.news[host].put_nowait(self._event(host))

    def hang_up(self, host: str = "10.0.0.2") -> None:
        self.news.pop(host).put_nowait(b"")

    def __call__(self, asked: Asked) -> Any:
        host = asked.server.removeprefix("https://").partition(":")[0]
        if host not in self.said or (self.is_mute and asked.path != POD_REPORTS.path()):
            raise Unreachable("no answer")
        if asked.path != POD_REPORTS.path():
            return RawResponse(404, {}, b"")
        if asked.method == "WATCH":
            self.news[host] = asyncio.Queue()
            if int(asked.query["resourceVersion"]) < self.said[host][0]:
                self.news[host].put_nowait(self._event(host))
            return self._events(self.news[host])
        version, report = self.said[host]
        return {
            "apiVersion": "edgehub.io/v1",
            "kind": "KubeletWordList",
            "metadata": {"resourceVersion": str(version)},
            "items": [orjson.loads(report_object(KEY, report, version))],
        }

    def _event(self, host: str) -> bytes:
        version, report = self.said[host]
        return b'{"type":"MODIFIED","object":' + report_object(KEY, report, version) + b"}\n"

    async def _events(self, queue: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
        while event := await queue.get():
            yield event
        raise Unreachable("it is gone")


class Scene(Cluster):
    """A hub with the neighbours n2 and n3, of which n2 is running and reports."""

    def __init__(self) -> None:
        super().__init__()
        self.is_up = True
        self.changed = Notifier()
        self.speaking = ReportingPeers()
        self.cuts: list[Server] = []
        self.client = ScriptedClient(self.speaking)
        self.stores = [slices(on_n2("10.0.0.1", CUT_AT - 1), version=CUT_AT)]
        self.peers = Peers(self.client, self._cut, asyncio.get_running_loop().time)
        self.neighbours = Neighbours(10269, self.peers, self.inputs, lambda: self.stores, cast(Cloud, self))
        self.neighbours.update(HUBS)
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start within the test, whose virtual clock differs from the fixture's."""
        self.task = asyncio.create_task(self._run(), name="neighbours")

    async def _run(self) -> None:
        await asyncio.gather(self.neighbours.run(), self.peers.run())

    def _cut(self, server: Server) -> int:
        self.cuts.append(server)
        self.speaking.hang_up(server.host)
        return 1

    def lose_cloud(self) -> None:
        self.start()
        self.is_up = False
        self.changed.notify()

    def find_cloud(self) -> None:
        self.is_up = True
        self.changed.notify()

    @property
    def report(self) -> PodReport | None:
        others = self.inputs.reports
        return others["n2"].of("default").get("web-0") if "n2" in others else None

    def asked(self) -> set[str]:
        return {each.server for each in self.client.asked}


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    if made.task is not None:
        made.task.cancel()
        await asyncio.wait([made.task])
    made.inputs.close()


async def test_no_neighbour_is_read_while_the_cloud_is_up(scene: Scene) -> None:
    scene.start()
    await asyncio.sleep(PATIENCE)
    assert not scene.asked()


async def test_all_neighbours_are_read_offline_until_their_last_report_ends(scene: Scene) -> None:
    scene.lose_cloud()
    await until(lambda: scene.report, PATIENCE)
    assert scene.asked() == {"https://10.0.0.2:10269", "https://10.0.0.3:10269"}
    assert set(scene.peers.healths) == scene.asked()
    scene.find_cloud()
    await until(lambda: "https://10.0.0.3:10269" not in scene.peers.healths, PATIENCE)
    await asyncio.sleep(PATIENCE)
    assert scene.report is not None, "the cloud has not heard it"
    scene.speaking.say(REPORT._replace(version=20))
    scene.stores[:] = [slices(on_n2("10.0.0.2", 21))]
    await until(lambda: not scene.peers.healths, PATIENCE)
    assert not scene.inputs.reports
    asked = len(scene.client.asked)
    await asyncio.sleep(PATIENCE)
    assert len(scene.client.asked) == asked


async def test_a_silent_neighbour_is_cut_and_read_again(scene: Scene) -> None:
    scene.lose_cloud()
    await until(lambda: scene.report, PATIENCE)
    scene.speaking.is_mute = True
    await until(lambda: scene.cuts, PATIENCE)
    scene.speaking.is_mute = False
    scene.speaking.say(REPORT._replace(addresses=("10.0.0.9",)))
    await until(lambda: scene.report is not None and scene.report.addresses == ("10.0.0.9",), PATIENCE)


async def test_reports_of_a_silent_hub_are_valid_until_newer_writes_by_the_cloud(scene: Scene) -> None:
    scene.lose_cloud()
    await until(lambda: scene.report, PATIENCE)
    del scene.speaking.said["10.0.0.2"]
    scene.speaking.hang_up()
    await asyncio.sleep(PATIENCE)
    assert scene.report == REPORT._replace(node="n2"), "there is no cloud"
    scene.find_cloud()
    await asyncio.sleep(FRESH / 2)
    assert scene.report == REPORT._replace(node="n2"), "it may be back in a moment"
    await asyncio.sleep(2 * FRESH)
    assert scene.report is not None
    assert scene.report.version == CUT_AT + 1
    scene.stores[:] = [slices(on_n2("10.0.0.1", CUT_AT + 1))]
    await until(lambda: not scene.peers.healths, PATIENCE)


async def test_reports_of_a_node_that_leaves_the_pool_are_removed(scene: Scene) -> None:
    scene.lose_cloud()
    await until(lambda: scene.report, PATIENCE)
    scene.neighbours.update(HUBS[1:])
    await asyncio.sleep(PATIENCE)
    assert scene.report is not None
    scene.find_cloud()
    await asyncio.sleep(FRESH / 2)
    assert scene.report is not None, "the hub may not know its pool for a moment"
    await until(lambda: not scene.peers.healths, PATIENCE)
    assert scene.report is None


async def test_a_hub_whose_list_exceeds_the_bound_is_not_read_again(scene: Scene) -> None:
    before = value_of(metrics.BOUNDS_REACHED.labels("words of another node"))
    scene.speaking.say(REPORT._replace(labels={"x": "y" * MAX_REPORT_BYTES}))
    scene.lose_cloud()
    await until(lambda: value_of(metrics.BOUNDS_REACHED.labels("words of another node")) > before, PATIENCE)
    asked = sum(each.server == "https://10.0.0.2:10269" for each in scene.client.asked)
    await asyncio.sleep(PATIENCE)
    assert sum(each.server == "https://10.0.0.2:10269" for each in scene.client.asked) == asked
    assert scene.report is None


async def test_a_hub_without_pod_reports_is_rarely_asked_again(scene: Scene) -> None:
    """A YurtHub, or a hub of an earlier version, does not serve reports."""

    def unknown(asked: Asked) -> Any:
        raise not_found("kubeletwords", "")

    scene.client.script = unknown
    scene.lose_cloud()
    await asyncio.sleep(PATIENCE)
    assert len(scene.client.asked) <= 2 * len(HUBS) * 2


async def test_the_first_of_two_hubs_at_one_address_is_read(scene: Scene) -> None:
    scene.neighbours.update((*HUBS, LeaderHub("n4", "10.0.0.2")))
    scene.lose_cloud()
    await until(lambda: scene.report, PATIENCE)
    assert {each["node"] for each in scene.neighbours.describe()} == {"n2", "n3"}
