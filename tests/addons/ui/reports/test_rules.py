"""The report `rules`: each entry with what it does now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from addons.filters.chain import FILTERS
from addons.rules.filter_modules import FilterModules
from addons.ui.reports.rules import rules
from addons.ui.reports.status import status
from addons.ui.reports.text import rules_text, status_text
from tests.addons.support.filter_plugins import text_of, write
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.report_parts import running_hub
from tests.addons.support.samples import SERVICES, cloud_service, service
from tests.cloud.scriptable import ScriptableCloud

DATA = {
    "discardcloudservice": "chosen, nobody, taken",
    "filter_discardcloudservice": "-taken",
    "nonsense": "x",
    "cache_agents": "more, -kubelet",
}


def entry(report: dict[str, Any], component: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in report["entries"] if each["component"] == component)
    return found


async def test_each_entry_says_what_it_does_and_where_it_is_from(
    parts: HubParts, cloud: ScriptableCloud
) -> None:
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
    hub = running_hub(parts, DATA)
    assert await parts.names(f"{SERVICES}?resourceVersion=0", "chosen") == ["web"]
    found = rules(hub)
    chosen = entry(found, "chosen")
    assert chosen.items() >= {"does": "binds", "matched": True, "views": 1, "kept": 1, "hidden": 1}.items()
    assert chosen["from"] == "configmap key discardcloudservice entry 'chosen'"
    assert entry(found, "nobody").items() >= {"does": "binds", "matched": False, "views": 0}.items()
    taken = [each["does"] for each in found["entries"] if each["component"] == "taken"]
    assert taken == ["taken away by an exclusion", "takes away"]
    assert [each["key"] for each in found["problems"]] == ["nonsense"]
    assert found["cachedComponents"] == {"added": ["more"], "removed": ["kubelet"]}
    assert any(each["from"] == "built-in" for each in found["entries"])


async def test_each_filter_tells_what_it_did_itself(parts: HubParts, cloud: ScriptableCloud) -> None:
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
    hub = running_hub(parts, {"discardcloudservice": "chosen", "nodeportisolation": "chosen"})
    assert await parts.names(f"{SERVICES}?resourceVersion=0", "chosen") == ["web"]
    told = {each["filter"]: each for each in rules(hub)["entries"] if each["component"] == "chosen"}
    assert told["discardcloudservice"].items() >= {"kept": 1, "changed": 0, "hidden": 1}.items()
    assert told["nodeportisolation"].items() >= {"kept": 1, "changed": 0, "hidden": 0}.items()


async def test_filters_that_are_not_the_hubs_are_named(parts: HubParts, tmp_path: Path) -> None:
    hub = running_hub(parts, {})
    assert rules(hub)["filterModules"] == {"filters": [], "problem": ""}
    write(tmp_path / "acme.py", text_of("web"))
    modules = FilterModules(FILTERS, [tmp_path / "acme.py"])
    modules.problem = "it is broken"
    report = rules(replace(hub, modules=modules))
    assert [each["filter"] for each in report["filterModules"]["filters"]] == ["acme-hide"]
    told = rules_text(report)
    assert "not the hub's: acme-hide (" in told
    assert "the former filters stay in force: it is broken" in told
    assert status(replace(hub, modules=modules))["rules"]["filterModules"] == "it is broken"
    assert "filters:  as before: it is broken" in status_text(status(replace(hub, modules=modules)))
