"""Quotas of one token: a bounded number of sources, views, bytes and copies; other requests are relayed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from addons.offline.copies import DiskCopies
from addons.offline.tables.copy_meta import source_name
from addons.offline.tables.disk_access import DiskAccess
from addons.requests.caller import Caller
from addons.telemetry import metrics
from addons.views.bounds import quotas
from kube.disk.database import Disk
from kube.disk.writer import DiskWriter
from kube.json_type import Json
from kube.reflector import list_pages
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.store import Store
from kube.wire.encoding import Encoding
from tests.addons.support.hub_world import HubWorld
from tests.addons.support.observed import until, value_of
from tests.addons.support.samples import HUB, POD, SERVICES, service
from tests.addons.support.source_parts import cut_watches
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.cloud.scriptable.faults import Refuse, Silence
from tests.cloud.scriptable.request_log import matching
from tests.support.objects import obj

SECRETS = "/api/v1/namespaces/{}/secrets?resourceVersion=0"


@pytest.fixture(autouse=True)
def pod(cloud: ScriptableCloud) -> None:
    cloud.access.tokens["pod"] = User("pod")


def secret(namespace: str, name: str = "s", size: int = 0) -> dict[str, Any]:
    return obj("Secret", name, namespace, data={"key": "eA==" * (size // 4)})


def refused_by(quota: str) -> float:
    return value_of(metrics.BEYOND_QUOTA.labels(quota))


def of_tokens(parts: HubWorld) -> int:
    return sum(bool(source.user) for source in parts.sources)


async def test_invented_namespaces_are_relayed_beyond_a_number_of_sources(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """300 invented namespaces once opened 299 watches at the cloud."""
    before = refused_by("sources")
    for number in range(quotas.MAX_SOURCES + 20):
        cloud.store.create(secret(f"n{number}"))
        assert await parts.names(SECRETS.format(f"n{number}"), caller=POD) == ["s"]
    assert of_tokens(parts) == quotas.MAX_SOURCES
    assert refused_by("sources") == before + 20
    assert (await parts.ask(SECRETS.format("n0")))[0] == 200, "the node has a quota of its own"


async def test_a_watch_beyond_the_quota_is_relayed(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "MAX_SOURCES", 0)
    target = "/api/v1/namespaces/a/secrets?watch=true&resourceVersion=0"
    cloud.store.create(secret("a"))
    async with parts.watch(target, caller=POD) as watch:
        assert await watch.event() == ("ADDED", "s")
        cloud.store.create(secret("a", "later"))
        assert await watch.event() == ("ADDED", "later")
    assert of_tokens(parts) == 0


async def test_a_relayed_read_has_the_clients_accepted_forms(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "MAX_SOURCES", 0)
    cloud.store.create(secret("a"))
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    code, found = await parts.ask(SECRETS.format("a"), caller=POD, accept=accept)
    assert (code, found["kind"], "data" in found["items"][0]) == (200, "PartialObjectMetadataList", False)


async def test_selectors_are_relayed_beyond_a_number_of_views(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    cloud.store.create(service("web"))
    before = refused_by("views")
    for number in range(quotas.MAX_VIEWS + 5):
        target = f"{SERVICES}?resourceVersion=0&labelSelector=!x{number}"
        assert await parts.names(target, caller=POD) == ["web"]
    assert sum(view.user == "" for source in parts.sources for view in source.views.values()) == 0
    assert sum(len(source.views) for source in parts.sources) == quotas.MAX_VIEWS
    assert refused_by("views") == before + 5


async def test_the_nodes_own_sources_and_views_are_bounded(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.store.create(service("web"))
    monkeypatch.setattr(quotas, "MAX_HUB_VIEWS", 1)
    views, sources = refused_by("views"), refused_by("sources")
    for _ in range(2):
        assert await parts.names(f"{SERVICES}?resourceVersion=0") == ["web"]
    assert await parts.names(f"{SERVICES}?resourceVersion=0&labelSelector=!x") == ["web"]
    assert (refused_by("views") - views, refused_by("sources") - sources) == (1, 0)
    monkeypatch.setattr(quotas, "MAX_HUB_SOURCES", 1)
    assert (await parts.ask(SECRETS.format("a")))[0] == 200
    assert (refused_by("views") - views, refused_by("sources") - sources) == (1, 1)


async def test_a_filtered_read_beyond_the_quota_is_429_and_not_relayed(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.store.create(service("web"))
    parts.set_rules({"filter_discardcloudservice": "reader/services"})
    monkeypatch.setattr(quotas, "MAX_VIEWS", 0)
    assert (await parts.ask(f"{SERVICES}?resourceVersion=0", "reader", caller=POD))[0] == 429
    assert (await parts.ask(f"{SERVICES}?resourceVersion=0", "reader"))[0] == 200


async def test_a_relayed_list_does_not_resume_at_a_version_of_a_filtered_view(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cloud would never send an object that the filter hid."""
    cloud.store.create({**service("web"), "spec": {"type": "LoadBalancer"}})
    rules = {"cache_agents": "reader"}
    parts.set_rules({**rules, "filter_discardcloudservice": "reader/services"})
    _, hidden = await parts.ask(f"{SERVICES}?resourceVersion=0", "reader", caller=POD)
    assert hidden["items"] == []
    parts.set_rules(rules)
    monkeypatch.setattr(quotas, "MAX_SOURCES", 0)
    monkeypatch.setattr(quotas, "MAX_VIEWS", 0)
    watch = f"{SERVICES}?watch=true&labelSelector=!x&resourceVersion="
    assert (await parts.ask(watch + hidden["metadata"]["resourceVersion"], "reader", caller=POD))[0] == 410
    _, shown = await parts.ask(f"{SERVICES}?resourceVersion=0&labelSelector=!x", "reader", caller=POD)
    assert [item["metadata"]["name"] for item in shown["items"]] == ["web"]


async def test_concurrent_first_lists_are_bounded(parts: HubWorld, cloud: ScriptableCloud) -> None:
    """The size of a list is known only after it has arrived."""
    silence = cloud.faults.add(Silence(), times=None, when=matching(resource="secrets"))
    asking = [
        asyncio.create_task(parts.ask(SECRETS.format(f"n{number}"), caller=POD))
        for number in range(quotas.MAX_FILLING + 6)
    ]
    await until(lambda: cloud.requests.count(resource="secrets") == quotas.MAX_FILLING)
    assert of_tokens(parts) == quotas.MAX_FILLING
    silence.lift()
    assert {code for code, _ in await asyncio.gather(*asking)} == {200}
    assert of_tokens(parts) == len(
        asking
    )  # the others were relayed, so that their kinds had no copy in an outage


async def test_a_filtered_read_beyond_the_first_lists_may_come_again_in_a_second(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manager of 30 informers was told to wait a minute, then again: its caches were complete after four."""
    parts.set_rules({"filter_inclusterconfig": "reader/configmaps"})
    silence = cloud.faults.add(Silence(), times=None, when=matching(resource="configmaps"))

    def ask(number: int) -> Coroutine[Any, Any, tuple[int, Json]]:
        path = f"/api/v1/namespaces/n{number}/configmaps?resourceVersion=0"
        return parts.ask(path, "reader", caller=POD)

    asking = [asyncio.create_task(ask(number)) for number in range(quotas.MAX_FILLING)]
    await until(lambda: cloud.requests.count(resource="configmaps") == len(asking))
    monkeypatch.setattr(parts.serving, "_wait", 0.0)
    code, refused = await ask(quotas.MAX_FILLING)
    monkeypatch.undo()
    assert (code, refused["details"]["retryAfterSeconds"]) == (429, 1)
    silence.lift()
    assert {code for code, _ in await asyncio.gather(*asking)} == {200}
    assert (await ask(quotas.MAX_FILLING))[0] == 200


async def test_bytes_of_all_tokens_are_bounded(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 selectors over 10 MB of objects once took 544 MB."""
    monkeypatch.setattr(quotas, "MAX_HELD", 100_000)
    for number in range(8):
        cloud.store.create(secret("a", f"s{number}", 5_000))
    for number in range(10):
        target = f"{SECRETS.format('a')}&labelSelector=!x{number}"
        assert len(await parts.names(target, caller=POD)) == 8
    remaining = [quotas.size_of(source) for source in parts.sources if source.user]
    assert 0 < sum(remaining) <= 100_000


async def test_bytes_of_sources_of_the_node_are_bounded_and_the_least_used_is_closed(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 lists by a local process, each with another selector, once took 32 MB of memory and 41 MB of disk."""
    for number in range(8):
        cloud.store.create(secret("a", f"s{number}", 5_000))
    target = f"{SECRETS.format('a')}&labelSelector=!x"
    assert len(await parts.names("/api/v1/secrets?resourceVersion=0")) == 8
    async with parts.watch(f"{target}&watch=true") as watch:
        assert await watch.event() == ("ADDED", "s0")
        (watched,) = [each for each in parts.sources if each.list_watch.label_selector]
        monkeypatch.setattr(quotas, "MAX_HUB_BYTES", 3 * quotas.size_of(watched))
        for number in (1, 2, 1, 3):
            assert len(await parts.names(f"{target}{number}")) == 8
        remaining = {each.list_watch.label_selector for each in parts.sources}
        assert remaining == {"", "!x", "!x1", "!x3"}, "a whole resource stays, and what is watched"
        monkeypatch.setattr(quotas, "MAX_HUB_BYTES", quotas.size_of(watched))
        before = refused_by("bytes")
        assert len(await parts.names(f"{target}4")) == 8
    assert refused_by("bytes") == before + 1
    assert {each.list_watch.label_selector for each in parts.sources} == {"", "!x"}


async def test_the_least_used_idle_source_of_the_node_is_closed(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that listed with ever new selectors once left an empty source for each."""
    monkeypatch.setattr(quotas, "MAX_HUB_IDLE", 2)
    target = f"{SECRETS.format('a')}&labelSelector=!x"
    for number in (1, 2, 3, 1, 4, 5):
        assert await parts.names(f"{target}{number}") == []
    assert {each.list_watch.label_selector for each in parts.sources} == {"!x1", "!x4", "!x5"}


async def test_no_source_is_evicted_while_the_cloud_is_away(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sources in use were loaded from disk, and cannot be read again offline."""
    cloud.store.create(secret("a"))
    assert await parts.names(SECRETS.format("a")) == ["s"]
    (remaining,) = [each for each in parts.sources if each.list_watch.namespace]
    remaining.is_measured = False
    monkeypatch.setattr(quotas, "MAX_HUB_BYTES", 0)
    monkeypatch.setattr(parts.sources, "_is_up", lambda: False)
    assert await parts.names(SECRETS.format("a")) == ["s"]
    assert not remaining.is_closed


async def test_a_source_of_the_hub_itself_is_never_evicted(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.store.create(secret("a"))
    own = parts.sources.get_own(ListWatch(ResourceType("", "v1", "secrets"), "a", encoding=Encoding.JSON))
    monkeypatch.setattr(quotas, "MAX_HUB_BYTES", 0)
    assert await parts.names(SECRETS.format("a")) == ["s"]
    assert not own.is_closed


@pytest.mark.parametrize(("caller", "bound"), [(POD, "MAX_HISTORIES"), (HUB, "MAX_HUB_HISTORIES")])
async def test_histories_of_all_views_have_a_common_bound(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch, caller: Caller, bound: str
) -> None:
    """16 watches of one token with different selectors once took 16 MiB each: 83 MB became 346."""
    monkeypatch.setattr("kube.store.change_log.TRIM_DELAY", 0)
    bounded = parts.sources._logs if caller is POD else parts.sources._hub_logs
    assert bounded._max_bytes == getattr(quotas, bound) < 16 * 16 * 2**20
    bounded._max_bytes = 10_000
    async with AsyncExitStack() as stack:
        watches = [
            await stack.enter_async_context(
                parts.watch(f"{SECRETS.format('a')}&watch=true&labelSelector=!x{number}", caller=caller)
            )
            for number in range(8)
        ]
        for number in range(20):
            cloud.store.create(secret("a", f"s{number}", 1_000))
            for watch in watches:
                assert await watch.event() == ("ADDED", f"s{number}")
        logs = [made.log for each in parts.sources for made in each.projections.values()]
        await until(lambda: sum(log.bytes for log in logs) <= 10_000)
        assert min(map(len, logs)) > 0


async def test_a_list_beyond_the_bound_of_all_lists_is_not_read_further(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token with four selectors once made the hub read four lists of up to 512 MiB at once."""
    monkeypatch.setattr(quotas, "MAX_HELD", 30_000)
    monkeypatch.setattr(list_pages, "PAGE", 2)
    for number in range(20):
        cloud.store.create(secret("a", f"s{number}", 5_000))
    target = f"{SECRETS.format('a')}&labelSelector=!x"
    before = refused_by("bytes")
    assert len(await parts.names(target, caller=POD)) == 20
    paged = cloud.requests.where(lambda each: each.resource == "secrets" and "limit=2" in each.query)
    assert 2 <= len(paged) <= 4
    assert of_tokens(parts) == 0
    assert refused_by("bytes") == before + 1


async def test_growing_sources_beyond_the_quota_are_closed_largest_first(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        for namespace in ("a", "b"):
            target = f"/api/v1/namespaces/{namespace}/secrets?watch=true&resourceVersion=0"
            watch = await stack.enter_async_context(parts.watch(target, caller=POD))
            cloud.store.create(secret(namespace, "s", 40_000 if namespace == "a" else 4))
            assert await watch.event() == ("ADDED", "s")
        monkeypatch.setattr(quotas, "MAX_HELD", 30_000)
        parts.sources._sweep()
    assert [source.list_watch.namespace for source in parts.sources if source.user] == ["b"]


async def test_a_refused_token_leaves_no_source(parts: HubWorld, cloud: ScriptableCloud) -> None:
    """601 sources of one refused token once continued to poll the cloud."""
    cloud.access.allowed["pod"] = lambda _: False
    for number in range(20):
        assert (await parts.ask(SECRETS.format(f"n{number}"), caller=POD))[0] == 403
    assert of_tokens(parts) == 0


async def test_a_source_that_the_cloud_refuses_is_closed_at_the_next_sweep(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    assert (await parts.ask(SECRETS.format("a"), caller=POD))[0] == 200
    cloud.access.allowed["pod"] = lambda _: False
    (source,) = [each for each in parts.sources if each.user]
    await cut_watches(cloud)
    await until(lambda: source.reflector.refusal is not None)
    parts.sources._sweep()
    assert of_tokens(parts) == 0


async def test_selected_sources_that_the_cloud_refuses_are_closed_at_the_next_sweep(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """A local process that lists with invented selectors once left a source for each, up to 4,096."""
    cloud.faults.add(Refuse(403), times=None, when=matching(resource="secrets"))
    before = set(parts.sources)
    for number in range(3):
        assert (await parts.ask(SECRETS.format(f"n{number}")))[0] == 403
    assert len(set(parts.sources) - before) == 3
    parts.sources._sweep()
    assert set(parts.sources) == before
    cloud.faults.clear()
    assert (await parts.ask(SECRETS.format("n0")))[0] == 200


@pytest.mark.parametrize(
    ("size", "count", "remaining"),
    [(4, 3, 3), (quotas.MAX_COPY_BYTES + 4, 1, 0), (4, quotas.MAX_COPIES + 4, quotas.MAX_COPIES)],
    ids=["small", "large", "many"],
)
async def test_copies_on_disk_are_bounded(
    parts: HubWorld, cloud: ScriptableCloud, tmp_path: Path, size: int, count: int, remaining: int
) -> None:
    copies = DiskCopies(DiskAccess(Disk(tmp_path), DiskWriter()))
    await copies.open()
    parts.sources._copies = copies
    for number in range(count):
        cloud.store.create(secret(f"n{number}", "s", size))
        assert len(await parts.names(SECRETS.format(f"n{number}"), caller=POD)) == 1
    user = next(source.user for source in parts.sources if source.user)
    await until(lambda: len(copies.list_watches(user)) == remaining)
    assert sum(source.copy is not None for source in parts.sources if source.user) == remaining
    copies.access.close()


async def test_an_evicted_source_is_not_remembered_as_refused_by_the_cloud(
    parts: HubWorld, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A client that returned to it once got a 403, although the cloud permitted the list."""
    copies = DiskCopies(DiskAccess(Disk(tmp_path), DiskWriter()))
    await copies.open()
    parts.sources._copies = copies
    monkeypatch.setattr(quotas, "MAX_HUB_IDLE", 0)
    cloud.store.create(secret("a"))
    target = f"{SECRETS.format('a')}&labelSelector=!x"
    assert await parts.names(target, "cached") == ["s"]
    (evicted,) = [each for each in parts.sources if each.list_watch.label_selector]
    assert evicted.copy is not None
    assert await parts.names(f"{target}1", "cached") == ["s"]
    assert evicted.is_closed
    await until(lambda: evicted.is_on_disk)
    again = copies.copy("", evicted.list_watch, Store())
    assert await again.restore() is None
    assert source_name("", evicted.list_watch) not in copies.metas
    again.close()
    assert await parts.names(target, "cached") == ["s"]
    copies.access.close()
