"""Pod reports of another node's hub: their begin and end, and hubs that are silent, lie or flood."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from addons.filters.inputs import PodReport
from addons.inputs.input_sources import InputKind
from addons.inputs.pod_reports import FRESH
from addons.pool.remote_reports import remote_pod_reports
from addons.pool.remote_reports.remote_pod_reports import SHORTEST, RemotePodReports
from addons.pool.remote_reports.report_objects import API_VERSION, KIND, report_object
from addons.telemetry import metrics
from kube.store.standing import Standing
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.inputs.test_filter_inputs import Cluster
from tests.addons.inputs.test_kubelet_reports import slice_of, slices
from tests.addons.support.observed import value_of

pytestmark = pytest.mark.looptime

KEY = ("default", "web-0")
WORD = PodReport("web-0", "u", {"app": "web"}, ("10.0.0.2",), True, False, "12:03")
OF_POD = (InputKind.POD_REPORT, "default", "web-0")
CUT_AT = 15
"""The version of the slices when the cloud went away."""


def refused(reason: str) -> float:
    return value_of(metrics.REPORTS_REFUSED.labels(reason))


def on_n2(address: str, version: int) -> Any:
    made = slice_of(address, version)
    made["endpoints"][0]["nodeName"] = "n2"
    return made


class Scene(Cluster):
    """A node whose neighbour n2 speaks."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.version = 0
        """The version of n2's hub."""
        self.newest = CUT_AT
        self.words = RemotePodReports(
            "n2", self.inputs.changed, self.inputs.ask, lambda: self.newest, lambda: self.now
        )
        self.inputs.others["n2"] = self.words
        self.inputs.refused = self.words.refuse

    @property
    def word(self) -> PodReport | None:
        return self.words.of("default").get("web-0")

    async def list(self, *said: PodReport, began: int = 0) -> None:
        self.version = max(self.version + 1, began)
        raws = [report_object(("default", each.name), each, self.version) for each in said]
        self.words.store.replace(codec_for(Encoding.JSON), API_VERSION, KIND, self.version, raws)
        await asyncio.sleep(SHORTEST)

    def send(self, word: PodReport, event: str = "MODIFIED") -> None:
        self.version += 1
        self.words.store.apply(event, report_object(("default", word.name), word, self.version))

    async def say(self, word: PodReport, event: str = "MODIFIED") -> None:
        self.send(word, event)
        await asyncio.sleep(SHORTEST)

    def later(self, *stores: Store) -> None:
        self.now += FRESH
        self.words.settle(stores)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    made.words.close()
    made.inputs.close()


async def test_a_word_is_what_the_node_said_last(scene: Scene) -> None:
    await scene.list(WORD)
    assert scene.word == WORD._replace(node="n2")
    assert scene.word.concerns(10**9), "the cloud has not heard it"
    await scene.say(WORD._replace(addresses=("10.0.0.3",)))
    assert scene.word.addresses == ("10.0.0.3",)


async def test_however_often_a_node_speaks_slices_are_filtered_twice_a_second(scene: Scene) -> None:
    await scene.list(WORD)
    scene.told.clear()
    for number in range(100):
        scene.send(WORD._replace(addresses=(f"10.0.1.{number}",)))
        await asyncio.sleep(SHORTEST / 50)
    await asyncio.sleep(SHORTEST)
    assert scene.word is not None
    assert scene.word.addresses == ("10.0.1.99",)
    assert 2 <= len(scene.told) <= 4
    assert set().union(*scene.told) == {OF_POD}


async def test_it_ends_when_this_nodes_slices_show_it_and_not_when_the_nodes_do(scene: Scene) -> None:
    await scene.list(WORD)
    scene.later(slices(on_n2("10.0.0.1", 4)))
    assert scene.word is not None, "the cloud has not heard it"
    await scene.say(WORD._replace(version=20))
    assert scene.word.concerns(21), "a slice may be written without it"
    await scene.say(WORD._replace(version=20), "DELETED")
    for _ in range(3):
        scene.later(slices(on_n2("10.0.0.1", 19)))
    assert scene.word is not None, "this node's slices are late"
    scene.later(slices(on_n2("10.0.0.2", 21)))
    assert scene.word is None


async def test_a_word_that_its_node_takes_back_is_none(scene: Scene) -> None:
    """The cloud has refused the status."""
    await scene.list(WORD)
    await scene.say(WORD, "DELETED")
    assert scene.word is None


async def test_a_hub_that_begins_anew_says_the_same(scene: Scene) -> None:
    await scene.list(WORD, WORD._replace(name="web-1", version=20), began=100)
    scene.words.store.stand(Standing.DISPROVED)
    scene.told.clear()
    await scene.list(WORD, began=50)
    assert scene.word == WORD._replace(node="n2")
    assert "web-1" in scene.words.of("default"), "the cloud has it, and this node's slices may not"
    assert scene.told == []


async def test_silence_ends_nothing_and_then_the_cloud_counts_where_it_wrote(scene: Scene) -> None:
    await scene.list(WORD)
    scene.later(slices(on_n2("10.0.0.1", CUT_AT - 1)))
    assert scene.word is not None
    scene.words.give_up()
    assert scene.word.concerns(CUT_AT), "what the cloud wrote before the outage"
    assert not scene.word.concerns(CUT_AT + 1)
    scene.later(slices(on_n2("10.0.0.1", CUT_AT - 1)))
    assert scene.word is not None
    scene.later(slices(on_n2("10.0.0.1", CUT_AT + 1)))
    assert scene.word is None


async def test_a_version_that_the_cloud_never_reached_does_not_last(scene: Scene) -> None:
    await scene.list(WORD._replace(version=10**18))
    scene.words.give_up()
    assert scene.word is not None
    assert scene.word.version == CUT_AT + 1


async def test_a_restored_cloud_knows_nothing_of_former_versions(scene: Scene) -> None:
    await scene.list(WORD._replace(version=20), WORD._replace(name="web-1"))
    restored = slices(on_n2("10.0.0.1", 4))
    restored.stand(Standing.DISPROVED)
    restored.replace(restored.codec, restored.api_version, restored.kind, 7, [])
    scene.later(restored)
    assert list(scene.words.of("default")) == ["web-1"]


async def test_a_word_about_a_pod_of_another_node_is_refused_and_counted_once(scene: Scene) -> None:
    before = refused("of another node")
    await scene.list(WORD)
    said = scene.inputs.ask().pod_reports("default")
    for _ in range(3):
        said.refuse(*said.of("web-0"))
    await asyncio.sleep(SHORTEST)
    assert scene.word is None
    for address in ("10.6.6.6", "10.6.6.7"):
        await scene.say(WORD._replace(addresses=(address,)))
    assert scene.word is None
    assert refused("of another node") == before + 1


async def test_what_is_no_word_is_counted_and_harms_no_other(scene: Scene) -> None:
    before = refused("malformed")
    await scene.list(WORD, WORD._replace(name="web-1", addresses=("x",)), WORD._replace(name="web-2", uid=""))
    assert list(scene.words.of("default")) == ["web-0"]
    assert refused("malformed") == before + 2


@pytest.mark.parametrize("way", ["pods", "bytes", "events"])
async def test_a_node_that_tells_of_too_much_is_heard_no_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    floods: list[str] = []
    scene.words.flooded = lambda: floods.append(way)
    reached = metrics.BOUNDS_REACHED.labels("words of another node")
    before = value_of(reached)
    monkeypatch.setattr(remote_pod_reports, "MAX_REPORTS", 3)
    monkeypatch.setattr(remote_pod_reports, "MAX_REPORT_BYTES", 2000)
    many = [WORD._replace(name=f"web-{number}") for number in range(4)]
    if way == "pods":
        await scene.list(*many)
    elif way == "bytes":
        await scene.list(WORD, WORD._replace(name="web-1", labels={"x": "y" * 2000}))
    else:
        await scene.list(*many[:3])
        assert not floods
        await scene.say(many[3], "ADDED")
    assert floods
    assert value_of(reached) > before
    assert len(scene.words.of("default")) == (3 if way == "events" else 0)
