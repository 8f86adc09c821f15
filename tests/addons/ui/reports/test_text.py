"""Reports as terminal text."""

from __future__ import annotations

from typing import Any

import pytest

from addons.ui.reports.hub_reports import REPORTS
from addons.ui.reports.rule_trial import try_rules
from addons.ui.reports.text import TEXTS, link, table, trial_text
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.samples import SERVICES, cloud_service, service
from tests.cloud.scriptable import ScriptableCloud


@pytest.mark.parametrize(
    ("cloud", "waits", "said"),
    [
        ({"seconds": 200}, 0, "Online for 3m20s"),
        ({}, 1, "Online for 5s, 1 write waits for the cloud"),
        ({"up": False, "seconds": 240}, 12, "Offline for 4m0s, 12 writes wait for the cloud"),
        ({"up": False}, 0, "Offline for 5s, 0 writes wait for the cloud"),
        ({"via": "n2", "uplink": "wwan0"}, 0, "Online through node n2 for 5s"),
        ({"uplink": "wwan0"}, 0, "Online by wwan0 for 5s"),
        ({"up": False, "reached": False}, *(0, "Never reached the cloud for 5s, since the start of the hub")),
    ],
)
def test_the_link_is_described_in_one_line(cloud: dict[str, Any], waits: int, said: str) -> None:
    usual = {"up": True, "seconds": 5, "reached": True, "via": "", "uplink": ""}
    report = {"cloud": {**usual, **cloud}, "journal": waits, "drill": {"link": "online"}}
    assert link(report) == said
    assert link(report | {"drill": {"link": "slow"}}) == f"DRILL, {said}"


def test_a_table_has_aligned_columns() -> None:
    rows: list[dict[str, Any]] = [{"a": "long words", "b": []}, {"a": "", "b": [1, 2]}]
    assert table(rows, (("a", lambda row: row["a"]), ("b", lambda row: row["b"]))) == (
        "A           B\nlong words  -\n-           1,2\n"
    )
    assert table([], ()) == "none\n"


@pytest.fixture
async def reports(parts: HubWorld, cloud: ScriptableCloud) -> dict[str, Any]:
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
    hub = parts.running_hub({"discardcloudservice": "chosen", "nonsense": "x"})
    hub.records.traffic.began("chosen", "services", is_error=False, is_watch=False)
    async with parts.watch(f"{SERVICES}?watch=true&resourceVersion=0&timeoutSeconds=9", "chosen") as watch:
        await watch.event()
        found = {name: REPORTS[name](hub) for name in TEXTS.keys() & REPORTS}
        return found | {"try": await try_rules(hub, {"discardcloudservice": "x", "bad": "y"})}


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("status", "Online for"),
        ("components", "discardcloudservice"),
        ("sources", "/api/v1/services"),
        ("views", "HIDDEN"),
        ("watchers", "chosen"),
        ("rules", "skipped: key nonsense"),
        ("journal", "0 writes wait"),
    ],
)
def test_each_report_has_a_text(reports: dict[str, Any], name: str, phrase: str) -> None:
    text = TEXTS[name](reports[name])
    assert phrase in text
    assert text.endswith("\n")


@pytest.mark.parametrize(
    ("count", "phrase"), [(1, "1 write waits: 1 status, 1 event"), (2, "2 writes wait: 1 status, 2 events")]
)
def test_the_number_of_pending_writes_is_singular_or_plural(count: int, phrase: str) -> None:
    report = {"waiting": count, "statuses": ["/a"], "events": count, "replayed": [], "dropped": []}
    assert TEXTS["journal"](report).startswith(phrase)


def test_a_rule_trial_is_printed(reports: dict[str, Any]) -> None:
    text = trial_text(reports["try"])
    assert "chosen get/list/watch services" not in text
    assert "discardcloudservice becomes no filter" in text
    assert "  + default/lb\n" in text
    assert "lost: 0 objects, 0 endpoints\n" in text
    assert "skipped: key bad" in text
