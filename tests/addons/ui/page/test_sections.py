"""The parts of the page that update by themselves."""

from __future__ import annotations

import pytest

from addons.ui.page.sections import sections, title
from addons.ui.page.server import PARTS
from addons.ui.page.timeline import Rates, Timeline
from addons.ui.reports.support import REPORTS
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.report_parts import SERVICES, read, running_hub
from tests.addons.support.samples import service
from tests.cloud.scriptable import ScriptableCloud


@pytest.fixture
async def parts_with_service(parts: HubParts, cloud: ScriptableCloud) -> HubParts:
    cloud.store.create(service("web"))
    await read(parts, SERVICES)
    return parts


async def test_each_part_of_the_page_is_made(parts_with_service: HubParts) -> None:
    hub = running_hub(parts_with_service, {"discardcloudservice": "chosen", "bad<key": "x"}, pool="p1")
    hub.traffic.began("<i>", "services", 200, is_watch=False).totals.sent += 5
    hub.log.lines.append("a <line>")
    found = sections(hub, Rates(hub.traffic), Timeline(hub), is_operator=True)
    assert {name for name, _ in PARTS} | {"state", "chain"} == set(found)
    assert "Online for" in found["state"]
    assert "skipped: 1" in found["state"]
    assert "bad&lt;key" in found["rules"]
    assert "&lt;i&gt;" in found["components"]
    assert "a &lt;line&gt;" in found["log"]
    assert "/api/v1/services" in found["sources"]
    assert "p1" in found["pool"]
    assert not any("<i>" in html or "<line>" in html or "bad<" in html for html in found.values())


async def test_an_outage_is_seen_at_once(parts: HubParts) -> None:
    hub = running_hub(parts)
    hub.cloud.servers[0].heard = 1.0
    hub.cloud.servers[0].failed("[Errno 113] no route to <host>")
    found = sections(hub, Rates(hub.traffic), Timeline(hub), is_operator=True)
    assert 'class="big away"' in found["state"], "amber: the node is served from its copies"
    assert ": no route to &lt;host&gt;" in found["state"]
    assert "edge cut" in found["chain"]
    assert title(hub).startswith("Offline for")


async def test_a_cloud_that_was_never_reached_is_said_in_red(parts: HubParts) -> None:
    hub = running_hub(parts)
    hub.cloud.servers[0].failed("refused")
    found = sections(hub, Rates(hub.traffic), Timeline(hub), is_operator=True)
    assert '<p class="big bad">Never reached the cloud for 0s' in found["state"]


async def test_the_log_is_for_the_operator(parts: HubParts) -> None:
    hub = running_hub(parts)
    hub.log.lines.append("a line")
    assert "a line" not in sections(hub, Rates(hub.traffic), Timeline(hub), is_operator=False)["log"]


async def test_a_pool_that_shares_is_shown_to_people(
    parts: HubParts, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    hub = running_hub(parts, pool="p1")
    found = sections(hub, Rates(hub.traffic), Timeline(hub), is_operator=True)["pool"]
    for words in ("p1, with n1, n2", "This hub is: leader", "no certificate yet", "&lt;refused&gt;", "n3"):
        assert words in found
    assert "{" not in found
    monkeypatch.setitem(REPORTS, "pool", lambda _: shared | {"shared": [], "members": []})
    assert (
        sections(hub, Rates(hub.traffic), Timeline(hub), is_operator=True)["pool"]
        == "<p>This node is in pool p1.</p>"
    )
