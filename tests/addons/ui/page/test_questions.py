"""What a person asks on the page."""

from __future__ import annotations

import pytest
import yaml

from addons.ui.page import questions
from addons.ui.page.questions import explain_form, explained, rules_text, trial_html
from addons.ui.reports.rule_trial import try_rules
from addons.ui.running_hub import RunningHub
from kube.store.store import Store
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.report_parts import SERVICES
from tests.addons.support.samples import cloud_service, config_map, fill
from tests.cloud.scriptable import ScriptableCloud


async def test_there_are_lists_to_choose_from(hub: RunningHub, monkeypatch: pytest.MonkeyPatch) -> None:
    form = explain_form(hub, {"resource": "services", "component": "seen"})
    for choice in (
        "<option selected>seen<",
        "<option>chosen<",
        "<option>default/lb<",
        "<option selected>services<",
    ):
        assert choice in form
    assert "edgehub" not in form
    monkeypatch.setattr(questions, "MAX_CHOICES", 1)
    assert "default/web" not in explain_form(hub, {"resource": "services"})


async def test_a_whole_resource_and_one_object(hub: RunningHub) -> None:
    whole = await explained(hub, {"component": "chosen", "resource": "services"})
    assert "1 kept, 0 changed, 1 hidden" in whole
    assert "LoadBalancer" in whole
    one = await explained(hub, {"component": "chosen", "resource": "services", "object": "default/web"})
    assert "the object is kept" in one
    assert await explained(hub, {"component": "chosen"}) == ""


async def test_what_is_hidden_for_the_same_reason_is_one_line(
    hub: RunningHub, cloud: ScriptableCloud, parts: HubParts
) -> None:
    source = next(each for each in parts.sources if each.list_watch.type == SERVICES)
    for number in range(7):
        cloud.store.create(cloud_service(f"made-{number}"))
    await source.ready(5, cloud.store.version)
    html = await explained(hub, {"component": "chosen", "resource": "services"})
    assert html.count("<tr") == 2
    assert "8 services hidden: discardcloudservice: " in html
    assert "default/lb, default/made-0, default/made-1, default/made-2, default/made-3 and 3 more" in html
    assert 'class="bad"' not in html, "it is hidden as meant"


async def test_nothing_that_was_asked_becomes_markup(hub: RunningHub) -> None:
    query = {"component": "<i>", "resource": "<i>", "object": "<i>/<i>", "verb": "<i>"}
    assert "<i>" not in explain_form(hub, query)
    assert "<i>" not in await explained(hub, query)


async def test_the_rules_as_a_person_edits_them(hub: RunningHub) -> None:
    assert rules_text(hub) == ""
    store = Store()
    fill(store, [config_map({"endpoints": "x, y", "cache_agents": "*"})], 5)
    hub.rules.follow(store, lambda: "")
    assert yaml.safe_load(rules_text(hub)) == {"endpoints": "x, y", "cache_agents": "*"}


async def test_a_trial(hub: RunningHub) -> None:
    trial = await try_rules(hub, {"discardcloudservice": "chosen, seen, <i>, later", "cache_agents": "z"})
    html = trial_html(trial)
    assert "1 object and 0 endpoints would be lost" in html
    assert "default/lb" in html
    assert "&lt;i&gt;" in html
    assert "<i>" not in html
    assert "later asked for nothing yet" in html
    assert "Reads of z will be kept" in html
    same = await try_rules(hub, {"discardcloudservice": "chosen"})
    assert "what the rules in force say" in trial_html(same)
