"""Filters applied for reports: as in a view, with each reason, in time slices, and up to a deadline."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from addons.filters.chain import FILTERS
from addons.filters.filter import Filter
from addons.filters.plugins import plugin_of
from addons.filters.verdict import Outcome
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.ui import dry_run as module
from addons.ui.dry_run import DryRunResult, dry_run, in_slices
from addons.ui.running_hub import RunningHub
from kube.reflector.list_watch import ListWatch
from kube.wire.encoding import Encoding
from tests.addons.support.filter_plugins import Hiding
from tests.addons.support.hub_world import SERVICES, HubWorld
from tests.addons.support.samples import service
from tests.cloud.scriptable import ScriptableCloud


@pytest.fixture
async def items(parts: HubWorld, hub: RunningHub) -> dict[str, Any]:
    return {item.key[1]: item for source in parts.sources for item in source.store}


async def test_a_dry_run_gives_the_shown_object_and_outcome(parts: HubWorld, items: dict[str, Any]) -> None:
    discard = next(each for each in FILTERS if each.name == "discardcloudservice")
    assert dry_run(items["web"], (discard,), parts.inputs).shown is items["web"]
    assert dry_run(items["lb"], (discard,), parts.inputs).shown is None
    assert dry_run(items["lb"], (), parts.inputs) == DryRunResult(items["lb"], Outcome.KEPT)


async def test_a_failing_filter_hides_the_object(parts: HubWorld, items: dict[str, Any]) -> None:
    class Failing:
        """A filter with a bug."""

        name = "failing"

        def apply(self, *_: object) -> None:
            raise RuntimeError("a fault")

    failing = (cast(Filter, Failing()),)
    result = dry_run(items["web"], failing, parts.inputs)
    assert (result.shown, result.why) == (None, ": object dropped: cannot be filtered: a fault")


async def test_the_outcome_of_a_json_filter_on_a_protobuf_copy_is_unknown(
    parts: HubWorld, cloud: ScriptableCloud
) -> None:
    """A filter that needs JSON hides nothing here: no client has requested the JSON that it would get."""
    cloud.store.create(service("web"))
    source = parts.sources.get(HUB_IDENTITY, ListWatch(SERVICES, encoding=Encoding.PROTOBUF))
    await source.ready(5)
    (item,) = source.store
    careful = plugin_of(Hiding(protobuf=False), "")
    assert dry_run(item, (careful,), parts.inputs).is_pending
    hidden = dry_run(item, (plugin_of(Hiding(), ""),), parts.inputs)
    assert (hidden.shown, hidden.is_pending) == (None, False)


async def test_callbacks_run_between_slices_of_a_dry_run(
    items: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "YIELD_INTERVAL", -1.0)
    ran: list[object] = []
    task = asyncio.create_task(asyncio.sleep(0))
    task.add_done_callback(ran.append)
    async for _ in in_slices(list(items.values()) * 5, time.monotonic() + 60):
        pass
    assert ran


async def test_a_dry_run_ends_at_its_deadline(items: dict[str, Any]) -> None:
    found = [each async for each in in_slices(list(items.values()) * 5, time.monotonic() - 1)]
    assert len(found) == 1
