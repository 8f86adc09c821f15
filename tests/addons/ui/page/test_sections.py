"""The sections of the status page: reports and forms as HTML."""

from __future__ import annotations

import pytest
import yaml

from addons.ui.handlers import ReportQueue
from addons.ui.page import sections as page_sections
from addons.ui.page.sections import explain_form, explained, rules_text, sections, title, tried
from addons.ui.page.server import PARTS
from addons.ui.page.timeline import Rates, Timeline
from addons.ui.reports.hub_reports import REPORTS
from addons.ui.running_hub import RunningHub
from kube.store.store import Store
from tests.addons.support.hub_world import SERVICES, HubWorld
from tests.addons.support.samples import cloud_service, config_map, fill, service
from tests.cloud.scriptable import ScriptableCloud


@pytest.fixture
async def parts_with_service(parts: HubWorld, cloud: ScriptableCloud) -> HubWorld:
    cloud.store.create(service("web"))
    await parts.source(SERVICES)
    return parts


async def test_each_section_of_the_page_is_rendered(parts_with_service: HubWorld) -> None:
    hub = parts_with_service.running_hub({"discardcloudservice": "chosen", "bad<key": "x"}, pool="p1")
    hub.records.traffic.began("<i>", "services", is_error=False, is_watch=False).totals.sent += 5
    hub.records.log.lines.append("a <line>")
    found = sections(hub, Rates(hub.records.traffic), Timeline(hub), is_operator=True)
    assert {name for name, _ in PARTS} | {"state", "chain"} == set(found)
    assert "Online for" in found["state"]
    assert "skipped: 1" in found["state"]
    assert "bad&lt;key" in found["rules"]
    assert "&lt;i&gt;" in found["components"]
    assert "a &lt;line&gt;" in found["log"]
    assert "/api/v1/services" in found["sources"]
    assert "p1" in found["pool"]
    assert not any("<i>" in html or "<line>" in html or "bad<" in html for html in found.values())


async def test_an_outage_is_shown_at_the_top(parts: HubWorld) -> None:
    hub = parts.running_hub()
    hub.cloud.servers[0].has_answered = True
    hub.cloud.servers[0].failed("[Errno 113] no route to <host>")
    found = sections(hub, Rates(hub.records.traffic), Timeline(hub), is_operator=True)
    assert 'class="big away"' in found["state"], "amber: the node is served from its copies"
    assert ": no route to &lt;host&gt;" in found["state"]
    assert "edge cut" in found["chain"]
    assert title(hub).startswith("Offline for")


async def test_a_cloud_that_was_never_reached_is_shown_in_red(parts: HubWorld) -> None:
    hub = parts.running_hub()
    cloud = hub.cloud.servers[0]
    cloud.last_received = 1.0  # accept the connection, and close it
    cloud.failed("[Errno 104] Connect call failed ('127.0.0.1', 6443)")
    found = sections(hub, Rates(hub.records.traffic), Timeline(hub), is_operator=True)
    assert '<p class="big bad">Never reached the cloud for 0s' in found["state"]
    assert ": Connection reset by peer" in found["state"]


async def test_the_log_is_shown_to_the_operator_only(parts: HubWorld) -> None:
    hub = parts.running_hub()
    hub.records.log.lines.append("a line")
    assert "a line" not in sections(hub, Rates(hub.records.traffic), Timeline(hub), is_operator=False)["log"]


async def test_a_sharing_pool_is_shown(parts: HubWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = {
        "node": "n2",
        "server": "https://n2:10269",
        "usable": False,
        "failure": "<refused>",
        "sources": [],
    }
    source = {"resource": "services", "server": "cloud", "since": "12:00", "why": "no other server serves it"}
    shared = {
        "members": ["n1", "n2"],
        "shared": ["services"],
        "role": "leader",
        "whyNot": "no certificate yet",
        "follows": [leader],
        "sources": [source],
        "followers": {"n3": 2},
    }
    monkeypatch.setitem(REPORTS, "pool", lambda _: shared)
    hub = parts.running_hub(pool="p1")
    found = sections(hub, Rates(hub.records.traffic), Timeline(hub), is_operator=True)["pool"]
    for phrase in ("p1, with n1, n2", "This hub is: leader", "no certificate yet", "&lt;refused&gt;", "n3"):
        assert phrase in found
    assert "{" not in found
    monkeypatch.setitem(REPORTS, "pool", lambda _: shared | {"shared": [], "members": []})
    assert (
        sections(hub, Rates(hub.records.traffic), Timeline(hub), is_operator=True)["pool"]
        == "<p>This node is in pool p1.</p>"
    )


async def test_the_explain_form_has_choices_of_components_and_objects(
    hub: RunningHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = explain_form(hub, {"resource": "services", "component": "seen"})
    for choice in (
        "<option selected>seen<",
        "<option>chosen<",
        "<option>default/lb<",
        "<option selected>services<",
    ):
        assert choice in form
    assert "edgehub" not in form
    monkeypatch.setattr(page_sections, "MAX_CHOICES", 1)
    assert "default/web" not in explain_form(hub, {"resource": "services"})


async def test_a_resource_and_one_object_are_explained(hub: RunningHub) -> None:
    page = await explained(hub, ReportQueue(), {"component": "chosen", "resource": "services"})
    assert "1 kept, 0 changed, 1 hidden" in page
    assert "LoadBalancer" in page
    one = await explained(
        hub, ReportQueue(), {"component": "chosen", "resource": "services", "object": "default/web"}
    )
    assert "the object is kept" in one
    assert await explained(hub, ReportQueue(), {"component": "chosen"}) == ""


async def test_objects_hidden_for_one_reason_are_one_line(
    hub: RunningHub, cloud: ScriptableCloud, parts: HubWorld
) -> None:
    source = next(each for each in parts.sources if each.list_watch.type == SERVICES)
    for number in range(7):
        cloud.store.create(cloud_service(f"made-{number}"))
    await source.ready(5, cloud.store.version)
    html = await explained(hub, ReportQueue(), {"component": "chosen", "resource": "services"})
    assert html.count("<tr") == 2
    assert "8 services hidden: discardcloudservice: " in html
    assert "default/lb, default/made-0, default/made-1, default/made-2, default/made-3 and 3 more" in html
    assert 'class="bad"' not in html, "it is hidden as meant"


async def test_query_parameters_are_escaped(hub: RunningHub) -> None:
    query = {"component": "<i>", "resource": "<i>", "object": "<i>/<i>", "verb": "<i>"}
    assert "<i>" not in explain_form(hub, query)
    assert "<i>" not in await explained(hub, ReportQueue(), query)


async def test_the_rules_form_has_the_current_configmap(hub: RunningHub) -> None:
    assert rules_text(hub) == ""
    store = Store()
    fill(store, [config_map({"endpoints": "x, y", "cache_agents": "*"})], 5)
    hub.rules.follow(store, lambda: "")
    assert yaml.safe_load(rules_text(hub)) == {"endpoints": "x, y", "cache_agents": "*"}


async def test_a_rule_trial_is_rendered(hub: RunningHub) -> None:
    edit = b"{discardcloudservice: 'chosen, seen, <i>, later', cache_agents: z}"
    html = await tried(hub, ReportQueue(), edit)
    assert "1 object and 0 endpoints would be lost" in html
    assert "default/lb" in html
    assert "&lt;i&gt;" in html
    assert "<i>" not in html
    assert "later has not asked for what they filter" in html
    assert "Reads of z will be kept" in html
    same = await tried(hub, ReportQueue(), b"discardcloudservice: chosen")
    assert "the same as the rules in force" in same
    assert "the text has no ConfigMap" in await tried(hub, ReportQueue(), b"kind: Pod")
