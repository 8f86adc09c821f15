"""Rules of which the hub can read only a part, and rules that it cannot get at all."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import aiohttp

from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse
from tests.cloud.scriptable.request_log import matching
from tests.hub.support.process import SLACK, Hub, started
from tests.hub.test_views import set_rules

GARBAGE = {
    "servicetopology": "flanneld, ../x, -, a b",
    "filter_servicetopology": "x/pods#list,y/endpointslices#shout,\x07",
    "filter_nonsense": "kubelet/pods",
    "no-such-filter": "kubelet",
}


def test_the_rest_of_a_bad_configmap_applies_and_people_are_told(hub: Hub, real_cloud: RealCloud) -> None:
    before = hub.metric("edgehub_rule_errors_total")
    set_rules(real_cloud, **GARBAGE)
    try:
        events = "/api/v1/namespaces/kube-system/events"
        hub.process.wait_for_line("rules: key 'no-such-filter'", SLACK)
        rules = hub.debug("rules")
        assert isinstance(rules, dict)
        assert len(rules["problems"]) >= 6
        assert hub.metric("edgehub_rule_errors_total") - before == len(rules["problems"])
        reader = RestClient(hub.url, user_agent="flanneld/v1")
        reader.get("/apis/discovery.k8s.io/v1/endpointslices", resourceVersion="0")
        reader.close()
        views = hub.debug("views")
        assert isinstance(views, list)
        assert ["servicetopology"] in [each["filters"] for each in views if each["component"] == "flanneld"]
        # The hub sends Events behind the rules' back; the cloud's watch tells when the first one is there.
        told = real_cloud.admin.watch(events, timeout=SLACK, fieldSelector="reason=BadRule")
        with contextlib.closing(told):
            about = next(told).object["involvedObject"]
        found = real_cloud.admin.get("/api/v1/namespaces/kube-system/configmaps/yurt-hub-cfg")
        assert about["uid"] == found["metadata"]["uid"], "kubectl describe finds Events by it"
        described = real_cloud.kubectl("describe", "configmap", "yurt-hub-cfg", "-n", "kube-system").stdout
        shown = described.partition("Events:")[2]
        assert "BadRule" in shown
        assert "is skipped:" in shown
    finally:
        set_rules(real_cloud)


async def test_what_a_rule_could_filter_waits_for_the_rules(cloud: ScriptableCloud, tmp_path: Path) -> None:
    unknown = cloud.faults.add(
        Refuse(403, "Forbidden", "no such right"), times=10_000, when=matching(resource="configmaps")
    )
    async with (
        started(Hub(tmp_path, cloud.url, flags=("--wait", "1")), ready=False) as hub,
        aiohttp.ClientSession(headers={"User-Agent": "kube-proxy/v1"}) as session,
    ):
        async with session.get(hub.url + "/api/v1/services?resourceVersion=0") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert "no such right" in (await answer.json())["message"]
        async with session.get(hub.url + "/api/v1/namespaces") as answer:
            assert answer.status == 200, "no filter knows this resource"
        async with session.get(hub.admin_url + "/readyz") as answer:
            assert answer.status == 503
            assert "rules" in await answer.text()
        unknown.lift()
        async with (
            asyncio.timeout(2 * SLACK),
            session.get(hub.url + "/api/v1/services?resourceVersion=0") as answer,
        ):
            assert answer.status in {200, 503}
        await asyncio.to_thread(hub.process.wait_for_line, "rules .* are in force", 2 * SLACK)
