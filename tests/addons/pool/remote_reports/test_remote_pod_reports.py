"""Pod reports from another node's hub: their start and end, and hubs that are silent, send false reports or flood."""

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
from kube.store.history import Standing
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.inputs.test_filter_inputs import Cluster
from tests.addons.inputs.test_kubelet_reports import slice_of, slices
from tests.addons.support.observed import value_of

pytestmark = pytest.mark.looptime

KEY = ("default", "web-0")
REPORT = PodReport("web-0", "u", {"app": "web"}, ("10.0.0.2",), True, False, "12:03")
CUT_AT = 15
"""The version of the slices when the connection to the cloud broke."""


def refused(reason: str) -> float:
    return value_of(metrics.REPORTS_REFUSED.labels(reason))


def on_n2(address: str, version: int) -> Any:
    made = slice_of(address, version)
    made["endpoints"][0]["nodeName"] = "n2"
    return made


class Scene(Cluster):
    """A node whose neighbour n2 sends reports."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.version = 0
        """The current version of n2's hub."""
        self.newest = CUT_AT
        self.reports = RemotePodReports(
            "n2", self.inputs.changed, self.inputs.ask, lambda: self.newest, lambda: self.now
        )
        self.inputs.reports["n2"] = self.reports
        self.inputs.refused = self.reports.refuse

    @property
    def report(self) -> PodReport | None:
        return self.reports.of("default").get("web-0")

    async def list(self, *said: PodReport, began: int = 0) -> None:
        self.version = max(self.version + 1, began)
        raws = [report_object(("default", each.name), each, self.version) for each in said]
        self.reports.store.replace(codec_for(Encoding.JSON), API_VERSION, KIND, self.version, raws)
        await asyncio.sleep(SHORTEST)

    def send(self, report: PodReport, event: str = "MODIFIED") -> None:
        self.version += 1
        self.reports.store.apply(event, report_object(("default", report.name), report, self.version))

    async def say(self, report: PodReport, event: str = "MODIFIED") -> None:
        self.send(report, event)
        await asyncio.sleep(SHORTEST)

    def later(self, *stores: Store) -> None:
        self.now += FRESH
        self.reports.settle(stores)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    made.reports.close()
    made.inputs.close()


async def test_the_latest_report_of_a_pod_is_used(scene: Scene) -> None:
    await scene.list(REPORT)
    assert scene.report == REPORT._replace(node="n2")
    assert scene.report.concerns(10**9), "the cloud has not heard it"
    await scene.say(REPORT._replace(addresses=("10.0.0.3",)))
    assert scene.report.addresses == ("10.0.0.3",)


async def test_frequent_reports_cause_two_evaluations_a_second_at_most(scene: Scene) -> None:
    await scene.list(REPORT)
    scene.notified.clear()
    for number in range(100):
        scene.send(REPORT._replace(addresses=(f"10.0.1.{number}",)))
        await asyncio.sleep(SHORTEST / 50)
    await asyncio.sleep(SHORTEST)
    assert scene.report is not None
    assert scene.report.addresses == ("10.0.1.99",)
    assert 2 <= len(scene.notified) <= 4
    assert set().union(*scene.notified) == {(InputKind.POD_REPORT, "default", "web-0")}


async def test_a_report_ends_once_the_slices_of_this_node_show_it(scene: Scene) -> None:
    await scene.list(REPORT)
    scene.later(slices(on_n2("10.0.0.1", 4)))
    assert scene.report is not None, "the cloud has not heard it"
    await scene.say(REPORT._replace(version=20))
    assert scene.report.concerns(21), "a slice may be written without it"
    await scene.say(REPORT._replace(version=20), "DELETED")
    for _ in range(3):
        scene.later(slices(on_n2("10.0.0.1", 19)))
    assert scene.report is not None, "this node's slices are late"
    scene.later(slices(on_n2("10.0.0.2", 21)))
    assert scene.report is None


async def test_a_report_deleted_by_its_hub_ends(scene: Scene) -> None:
    """The hub deletes it after the cloud refused the status."""
    await scene.list(REPORT)
    await scene.say(REPORT, "DELETED")
    assert scene.report is None


async def test_a_restarted_hub_repeats_its_reports_without_a_notification(scene: Scene) -> None:
    await scene.list(REPORT, REPORT._replace(name="web-1", version=20), began=100)
    scene.reports.store.set_standing(Standing.DISPROVED)
    scene.notified.clear()
    await scene.list(REPORT, began=50)
    assert scene.report == REPORT._replace(node="n2")
    assert "web-1" in scene.reports.of("default"), "the cloud has it, and this node's slices may not"
    assert scene.notified == []


async def test_reports_of_a_silent_hub_end_only_where_the_cloud_has_written_since(scene: Scene) -> None:
    await scene.list(REPORT)
    scene.later(slices(on_n2("10.0.0.1", CUT_AT - 1)))
    assert scene.report is not None
    scene.reports.end_superseded()
    assert scene.report.concerns(CUT_AT), "what the cloud wrote before the outage"
    assert not scene.report.concerns(CUT_AT + 1)
    scene.later(slices(on_n2("10.0.0.1", CUT_AT - 1)))
    assert scene.report is not None
    scene.later(slices(on_n2("10.0.0.1", CUT_AT + 1)))
    assert scene.report is None


async def test_a_report_at_a_version_that_the_cloud_never_reached_ends(scene: Scene) -> None:
    await scene.list(REPORT._replace(version=10**18))
    scene.reports.end_superseded()
    assert scene.report is not None
    assert scene.report.version == CUT_AT + 1


async def test_a_cluster_restore_discards_reports_with_earlier_versions(scene: Scene) -> None:
    await scene.list(REPORT._replace(version=20), REPORT._replace(name="web-1"))
    restored = slices(on_n2("10.0.0.1", 4))
    restored.set_standing(Standing.DISPROVED)
    restored.replace(restored.codec, restored.api_version, restored.kind, 7, [])
    scene.later(restored)
    assert list(scene.reports.of("default")) == ["web-1"]


async def test_a_report_about_a_pod_of_another_node_is_refused_and_counted_once(scene: Scene) -> None:
    before = refused("of another node")
    await scene.list(REPORT)
    said = scene.inputs.ask().pod_reports("default")
    for _ in range(3):
        said.refuse(*said.of("web-0"))
    await asyncio.sleep(SHORTEST)
    assert scene.report is None
    for address in ("10.6.6.6", "10.6.6.7"):
        await scene.say(REPORT._replace(addresses=(address,)))
    assert scene.report is None
    assert refused("of another node") == before + 1


async def test_a_malformed_report_is_counted_and_does_not_affect_the_rest(scene: Scene) -> None:
    before = refused("malformed")
    await scene.list(
        REPORT, REPORT._replace(name="web-1", addresses=("x",)), REPORT._replace(name="web-2", uid="")
    )
    assert list(scene.reports.of("default")) == ["web-0"]
    assert refused("malformed") == before + 2


@pytest.mark.parametrize("failure", ["pods", "bytes", "events"])
async def test_a_node_with_too_many_reports_is_ignored(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    floods: list[str] = []
    scene.reports.flooded = lambda: floods.append(failure)
    reached = metrics.BOUNDS_REACHED.labels("words of another node")
    before = value_of(reached)
    monkeypatch.setattr(remote_pod_reports, "MAX_REPORTS", 3)
    monkeypatch.setattr(remote_pod_reports, "MAX_REPORT_BYTES", 2000)
    many = [REPORT._replace(name=f"web-{number}") for number in range(4)]
    if failure == "pods":
        await scene.list(*many)
    elif failure == "bytes":
        await scene.list(REPORT, REPORT._replace(name="web-1", labels={"x": "y" * 2000}))
    else:
        await scene.list(*many[:3])
        assert not floods
        await scene.say(many[3], "ADDED")
    assert floods
    assert value_of(reached) > before
    assert len(scene.reports.of("default")) == (3 if failure == "events" else 0)
