"""A hub serves reports on its pods to its neighbours, as lists and watches."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.filters.inputs import PodReport
from addons.inputs.kubelet_reports import KubeletReports
from addons.pool.peer_serving import PeerServing
from addons.pool.remote_reports import pod_report_server
from addons.pool.remote_reports.pod_report_server import PodReportServer
from addons.pool.remote_reports.report_objects import POD_REPORTS, read_report, report_object
from addons.requests.caller import Caller, CredentialSource, Listener
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import decide
from addons.telemetry import metrics
from kube.json_type import Json
from kube.requests.request_info import parse_request
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.addons.inputs.test_kubelet_reports import PATH, pod
from tests.addons.support.exchange import Exchange
from tests.addons.support.hub_world import HubWorld, Watching, name_of
from tests.addons.support.observed import value_of
from tests.cloud.scriptable import ScriptableCloud

TARGET = POD_REPORTS.path()


class ReportingHub:
    """A hub of the pool that does not lead, and its kubelet."""

    def __init__(self, parts: HubWorld) -> None:
        self.parts = parts
        self.reports = KubeletReports(parts.inputs.changed, parts.inputs.ask, Store, lambda: True)
        self.reports.heard(PATH, pod("10.0.0.1"))
        self.spoken = PodReportServer(self.reports)
        self.serving = PeerServing(
            parts.sources, parts.serving, lambda: False, lambda _type: False, self.spoken
        )

    def say(self, *addresses: str, path: str = PATH, **more: Any) -> None:
        self.reports.heard(path, pod(*addresses, **more))

    @asynccontextmanager
    async def open(self, target: str, accept: str = Encoding.JSON) -> AsyncIterator[Exchange]:
        info, nobody = parse_request("GET", target), Caller(CredentialSource.NONE)
        route = decide(info, "x", nobody, Listener.PEER, accept, self.parts.rules)
        context = RequestContext(info, "x", Listener.PEER, accept)
        context.caller, context.route, context.peer = nobody, route, "n2"
        async with self.parts.open(context, answerer=self.serving) as response:
            yield response

    async def ask(self, target: str = TARGET, accept: str = Encoding.JSON) -> tuple[int, Any]:
        async with self.open(target, accept) as response:
            return await response.status, json.loads(await response.read_body())

    async def said(self) -> dict[str, list[str]]:
        """Return the addresses by pod."""
        found = (await self.ask())[1]["items"]
        return {each["metadata"]["name"]: [ip["ip"] for ip in each["status"]["podIPs"]] for each in found}


@pytest.fixture
async def hub() -> AsyncIterator[ReportingHub]:
    async with ScriptableCloud() as cloud, HubWorld(cloud) as parts:
        made = ReportingHub(parts)
        yield made
        made.serving.close()


async def test_a_report_has_only_the_fields_that_endpoints_need(hub: ReportingHub) -> None:
    status = pod("10.0.0.1", "fd00::1", annotations={"secret": "x"})
    status["status"]["containerStatuses"] = [{"name": "secret"}]
    status["spec"] = {"containers": [{"env": [{"name": "SECRET", "value": "x"}]}]}
    hub.reports.heard(PATH, status)
    code, found = await hub.ask()
    assert code == 200
    (report,) = found["items"]
    assert int(report["metadata"].pop("resourceVersion")) > 10**15, "later than those of an earlier process"
    del report["since"]
    assert report == {
        "apiVersion": "edgehub.io/v1",
        "kind": "KubeletWord",
        "metadata": {"name": "web-0", "namespace": "default", "uid": "u", "labels": {"app": "web"}},
        "status": {
            "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
        "version": "",
    }


async def test_a_watch_sends_new_and_ended_reports(hub: ReportingHub) -> None:
    version = (await hub.ask())[1]["metadata"]["resourceVersion"]
    async with hub.open(f"{TARGET}?watch=true&resourceVersion={version}") as response:
        watching = Watching(response)
        hub.say("10.0.0.2")
        hub.say("10.0.0.2")  # kubelet repeats an unchanged status periodically
        hub.say("10.0.0.3", path=f"{PATH}1", name="web-01")
        hub.reports.ended(PATH, 20)
        hub.reports.ended(f"{PATH}1", 0)
        frames = [await watching.next() for _ in range(4)]
        assert [(each.type, name_of(each)) for each in frames] == [
            ("MODIFIED", "web-0"),
            ("ADDED", "web-01"),
            ("MODIFIED", "web-0"),
            ("DELETED", "web-01"),
        ]
        assert json.loads(frames[2].raw)["version"] == "20"
        assert hub.serving.watchers() == {"n2": 1}
        hub.serving.keep_only(lambda node, type_: (node, type_) != ("n2", POD_REPORTS))
        assert await watching.until_end() == []


@pytest.mark.parametrize(
    ("target", "accept", "code"),
    [
        (TARGET, Encoding.PROTOBUF, 406),
        (f"{TARGET}?labelSelector=app", Encoding.JSON, 403),
        (f"{TARGET}/web-0", Encoding.JSON, 403),
        ("/api/v1/pods", Encoding.JSON, 403),
        ("/api/v1/services", Encoding.JSON, 403),
    ],
)
async def test_other_resources_and_verbs_are_refused(
    hub: ReportingHub, target: str, accept: str, code: int
) -> None:
    assert (await hub.ask(target, accept))[0] == code


@pytest.mark.parametrize("bound", ["MAX_REPORTS", "MAX_REPORT_BYTES"])
async def test_a_hub_reports_pods_up_to_the_bound_of_its_readers(
    hub: ReportingHub, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    before = value_of(metrics.BOUNDS_REACHED.labels("kubelet's words"))
    monkeypatch.setattr(pod_report_server, bound, {"MAX_REPORTS": 1, "MAX_REPORT_BYTES": 500}[bound])
    hub.say("10.0.0.3", path=f"{PATH}1", name="web-01")
    assert await hub.said() == {"web-0": ["10.0.0.1"]}
    assert value_of(metrics.BOUNDS_REACHED.labels("kubelet's words")) == before + 1
    hub.say("10.0.0.2")
    assert await hub.said() == {"web-0": ["10.0.0.2"]}


KEY = ("default", "web-0")
REPORT = PodReport("web-0", "u", {"app": "web"}, ("10.0.0.2", "fd00::2"), True, False, "12:03")


@pytest.mark.parametrize(
    "report",
    [
        REPORT,
        REPORT._replace(addresses=(), is_ready=False),
        REPORT._replace(is_terminating=True, version=77),
        REPORT._replace(labels={}),
    ],
)
def test_a_report_survives_encoding_and_decoding(report: PodReport) -> None:
    assert read_report(report_object(KEY, report, 5), "n2") == report._replace(node="n2")


@pytest.mark.parametrize(
    "changed",
    [
        {"metadata": {}},
        {"metadata": {"name": "web-0"}},
        {"metadata": {"name": "web-0\nx", "uid": "u"}},
        {"version": "-1"},
        {"version": "x"},
        {"status": {"podIPs": [{"ip": "not an address"}]}},
        {"status": {"podIPs": [{"ip": "10.0.0.1, 10.0.0.2"}]}},
    ],
)
def test_an_incomplete_report_is_refused(changed: Json) -> None:
    document = orjson.loads(report_object(KEY, REPORT, 5)) | changed
    with pytest.raises(ValueError, match=r"."):
        read_report(orjson.dumps(document), "n2")


@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(), st.lists))
def test_garbage_in_any_field_is_a_report_or_a_value_error(garbage: object) -> None:
    for field in ("metadata", "status", "version", "since"):
        document = orjson.loads(report_object(KEY, REPORT, 5)) | {field: garbage}
        try:
            report = read_report(orjson.dumps(document), "n2")
        except ValueError:
            continue
        assert report.since in ("", "12:03")
        assert report.name == "web-0"
