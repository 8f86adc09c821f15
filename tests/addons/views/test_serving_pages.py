"""Pages of filtered lists, which the hub makes itself: equal to kube-apiserver's, and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from addons.telemetry import metrics
from addons.views import list_answer
from kube.json_type import Json
from kube.requests.continue_tokens import parse_continue
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.observed import value_of
from tests.addons.support.samples import SERVICES, cloud_service, service
from tests.cloud.scriptable import ScriptableCloud

RULES = {"cache_agents": "cached", "filter_discardcloudservice": "cached/services"}
DEFAULT = "/api/v1/namespaces/default/services"


@pytest.fixture(autouse=True)
def four(parts: HubWorld, cloud: ScriptableCloud) -> None:
    """Create the Services a, b, c and d, and a hidden one."""
    parts.set_rules(RULES)
    for name in "dbca":
        cloud.store.create(service(name))
    cloud.store.create(cloud_service("bb"))


async def page(parts: HubWorld, path: str = SERVICES, **query: Any) -> Json:
    code, found = await parts.ask(f"{path}?{'&'.join(f'{name}={value}' for name, value in query.items())}")
    assert code == 200, found
    return found


def names(found: Json) -> list[str]:
    return [item["metadata"]["name"] for item in found["items"]]


async def rest(parts: HubWorld, first: Json, path: str = SERVICES) -> Json:
    """Return all pages after the first."""
    return await page(parts, path, **{"continue": first["metadata"]["continue"]})


@pytest.mark.parametrize("path", [SERVICES, DEFAULT])
async def test_all_pages_show_the_state_at_the_first_page(
    parts: HubWorld, cloud: ScriptableCloud, path: str
) -> None:
    first = await page(parts, path, limit=2)
    assert (names(first), first["metadata"]["remainingItemCount"]) == (["a", "b"], 2)
    cloud.store.create(service("aa"))
    cloud.store.create(service("cc"))
    cloud.store.delete("services", "c", "default")
    assert names(await page(parts, path)) == ["a", "aa", "b", "cc", "d"]
    last = await rest(parts, first, path)
    assert names(last) == ["c", "d"]
    assert last["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}


async def test_only_a_page_without_selectors_has_a_remaining_count(parts: HubWorld) -> None:
    first = await page(parts, limit=2, fieldSelector="metadata.name!=d")
    assert names(first) == ["a", "b"]
    assert "remainingItemCount" not in first["metadata"]


async def test_a_page_is_not_older_than_requested(parts: HubWorld, cloud: ScriptableCloud) -> None:
    version = (await page(parts))["metadata"]["resourceVersion"]
    asked = {"limit": 3, "resourceVersion": version}
    assert names(await page(parts, **asked, resourceVersionMatch="NotOlderThan")) == ["a", "b", "c"]
    assert names(await page(parts, **asked)) == ["a", "b", "c"], "of this very version"
    cloud.store.create(service("aa"))
    await page(parts)
    assert names(await page(parts, **asked, resourceVersionMatch="NotOlderThan")) == ["a", "aa", "b"]
    code, found = await parts.ask(f"{SERVICES}?limit=3&resourceVersion={version}")
    assert (code, found["reason"]) == (410, "Expired"), "nobody can say what that version was"


async def test_an_expired_list_can_be_continued_in_the_current_state(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_answer, "PAGES_TTL", 0.0)
    first = await page(parts, limit=2)
    cloud.store.create(service("cc"))
    code, found = await parts.ask(f"{SERVICES}?limit=2&continue={first['metadata']['continue']}")
    assert (code, found["reason"]) == (410, "Expired")
    second = await rest(parts, found)
    assert names(second) == ["c", "cc", "d"]
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])


async def test_an_edit_of_the_rules_expires_a_paged_list(parts: HubWorld) -> None:
    first = await page(parts, limit=2)
    parts.set_rules({**RULES, "filter_masterservice": "cached/services"})
    await page(parts)
    code, _ = await parts.ask(f"{SERVICES}?limit=2&continue={first['metadata']['continue']}")
    assert code == 410


async def test_the_number_of_paged_lists_is_bounded(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = metrics.BOUNDS_REACHED.labels("lists read in pages")
    before = value_of(reached)
    oldest = await page(parts, limit=1)
    size = sum(len(item.stored) for source in parts.sources for item in source.store)
    monkeypatch.setattr(list_answer, "MAX_PAGED", size * 3 // 2)
    cloud.store.create(service("e"))
    newest = await page(parts, limit=1)
    assert value_of(reached) == before + 1
    assert names(await rest(parts, newest)) == ["b", "c", "d", "e"]
    code, _ = await parts.ask(f"{SERVICES}?continue={oldest['metadata']['continue']}")
    assert code == 410
    monkeypatch.setattr(list_answer, "MAX_PAGED", 1)
    cloud.store.create(service("f"))
    assert names(await page(parts, limit=1)) == [*"abcdef"], "a list that has no room comes whole"


async def test_a_continue_token_is_accepted_by_the_cloud(parts: HubWorld) -> None:
    first = await page(parts, DEFAULT, limit=2)
    token = parse_continue(first["metadata"]["continue"])
    assert (str(token.version), token.start) == (first["metadata"]["resourceVersion"], "b\0")
