"""Rules that change during open watches, rules with invalid entries, and rules that the hub cannot read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient
from tests.cloud.rights import account, rights, rule
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.faults import Refuse
from tests.cloud.scriptable.request_log import matching
from tests.hub.support.http2 import Streams
from tests.hub.support.objects import endpoint_slice, nodes_of, service, services, set_rules, slices
from tests.hub.support.process import SLACK, Hub, started
from tests.hub.support.settled import caught_up
from tests.hub.support.streams import Seen, watching


def test_the_valid_part_of_a_bad_configmap_applies_and_the_rest_is_reported(
    hub: Hub, real_cloud: RealCloud
) -> None:
    before = hub.metric("edgehub_rule_errors_total")
    garbage = {
        "servicetopology": "flanneld, ../x, -, a b",
        "filter_servicetopology": "x/pods#list,y/endpointslices#shout,\x07",
        "filter_nonsense": "kubelet/pods",
        "no-such-filter": "kubelet",
    }
    set_rules(real_cloud, **garbage)
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
        # The hub sends Events asynchronously; the cloud's watch shows when the first one has arrived.
        recorded = real_cloud.admin.watch(events, timeout=SLACK, fieldSelector="reason=BadRule")
        with contextlib.closing(recorded):
            about = next(recorded).object["involvedObject"]
        found = real_cloud.admin.get("/api/v1/namespaces/kube-system/configmaps/yurt-hub-cfg")
        assert about["uid"] == found["metadata"]["uid"], "kubectl describe finds Events by it"
        described = real_cloud.kubectl("describe", "configmap", "yurt-hub-cfg", "-n", "kube-system").stdout
        shown = described.partition("Events:")[2]
        assert "BadRule" in shown
        assert "is skipped:" in shown
    finally:
        set_rules(real_cloud)


async def test_a_request_that_rules_could_filter_waits_for_the_rules(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
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


@pytest.fixture
def web(real_cloud: RealCloud, hub: Hub, namespace: str) -> str:
    """Create a Service for this node only, with endpoints here and on another node; return its namespace."""
    on_this_node = {"openyurt.io/topologyKeys": "kubernetes.io/hostname"}
    real_cloud.admin.post(services(namespace), service("web", on_this_node))
    real_cloud.admin.post(slices(namespace), endpoint_slice("web-1", "web", hub.node, "elsewhere"))
    caught_up(real_cloud, hub)
    return namespace


async def test_an_edit_of_the_rules_reaches_open_watches_at_once(
    hub: Hub, real_cloud: RealCloud, web: str
) -> None:
    def showing(name: str, *nodes: str) -> Callable[[list[Seen]], bool]:
        """Return True if the last event of a slice has these nodes."""

        def shows(seen: list[Seen]) -> bool:
            about = [each for each in seen if each.name == name]
            return bool(about) and nodes_of(about[-1].object) == list(nodes)

        return shows

    await asyncio.to_thread(set_rules, real_cloud)
    async with (
        watching(
            hub.url, slices(web), component="ingress", resourceVersion="0", allowWatchBookmarks="true"
        ) as relayed,
        watching(
            hub.url, slices(web), component="flanneld", resourceVersion="0", allowWatchBookmarks="true"
        ) as viewed,
    ):
        await relayed.first("ADDED", "web-1")
        # The hub may be notified only now that the previous test's rules were deleted.
        await viewed.until(showing("web-1", hub.node, "elsewhere"))
        rule = "flanneld/endpointslices#list;watch,ingress/endpointslices"
        await asyncio.to_thread(set_rules, real_cloud, filter_servicetopology=rule)
        await viewed.until(showing("web-1", hub.node))
        # The hub ends this relayed watch, so that its client opens a filtered one.
        await relayed.until(lambda _: relayed.ended)
        await asyncio.to_thread(set_rules, real_cloud)
        await viewed.until(showing("web-1", hub.node, "elsewhere"))
        later = [each.type for each in viewed.seen if each.type != "BOOKMARK"][1:]
        assert set(later) == {"MODIFIED"}


async def test_a_relayed_watch_ended_by_an_edit_ends_like_the_clouds_watches(
    hub: Hub, real_cloud: RealCloud, web: str
) -> None:
    """The client once got a broken connection: the last chunk, and the end of the stream, were missing."""
    await asyncio.to_thread(set_rules, real_cloud)
    target = f"{slices(web)}?watch=true&resourceVersion=0"
    token = await asyncio.to_thread(real_cloud.token, web, "default")
    granted = rights(
        "reads",
        [rule("discovery.k8s.io", "endpointslices", "list watch")],
        account(web, "default"),
        namespace=web,
    )
    await asyncio.to_thread(real_cloud.apply, granted)
    streams = await Streams.open(hub.tls_port, str(hub.authority))
    async with (
        aiohttp.ClientSession(headers={"User-Agent": "ingress/v1"}) as session,
        session.get(hub.url + target) as answer,
    ):
        assert await answer.content.readany()
        watch = streams.get(target, {"authorization": f"Bearer {token}", "user-agent": "ingress/v1"})
        await streams.until(lambda: streams.received.get(watch, 0) > 0)
        await asyncio.to_thread(set_rules, real_cloud, servicetopology="ingress")
        await answer.content.read()  # ClientPayloadError without the last chunk
        await streams.until(lambda: watch in streams.ended)
    await streams.close()
    await asyncio.to_thread(set_rules, real_cloud)
