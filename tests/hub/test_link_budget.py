"""A hub whose link has a byte budget: it reports when the budget is spent, and continues."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from kube.json_type import Json
from tests.cloud.fixtures import OpenLink
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.lone_links import until
from tests.hub.support.process import Hub, started
from tests.support.objects import obj

LARGE = 300_000
SPENT = "edgehub_link_budget_spent_bytes"


async def test_a_spent_budget_is_reported_once_and_cuts_no_traffic(
    cloud: ScriptableCloud, link: OpenLink, tmp_path: Path
) -> None:
    def events_of() -> list[Json]:
        return [each for each in cloud.store.list("events") if each["reason"] == "LinkBudgetSpent"]

    def warnings(hub: Hub) -> int:
        return sum("has spent its budget" in line for line in hub.process.lines)

    config_maps = "/api/v1/namespaces/default/configmaps"

    async def read_through(hub: Hub) -> None:
        """Read a large response through the hub."""
        async with aiohttp.ClientSession() as session, session.get(hub.url + config_maps) as answer:
            assert answer.status == 200
            assert len(await answer.read()) > LARGE

    incompressible = random.Random(1).randbytes(LARGE // 2).hex()
    cloud.store.create(obj("ConfigMap", "large", "default", data={"x": incompressible}))
    url = urlsplit(cloud.url)
    opened = link(url.hostname or "", url.port or 0)
    server = f"http://{opened.host}:{opened.port}"
    async with started(Hub(tmp_path, server, flags=("--link-budget", "300kB/month"))) as hub:
        await read_through(hub)
        before = opened.traffic
        up, down = (hub.metric("edgehub_link_bytes_total", direction=each) for each in ("up", "down"))
        after = opened.traffic
        assert before.up * 0.9 <= up <= after.up * 1.1
        assert LARGE / 2 < before.down * 0.9 <= down <= after.down * 1.1
        assert hub.metric("edgehub_link_budget_bytes") == 300_000
        assert not events_of()
        await read_through(hub)
        await until(events_of, "the Event is there")
        await read_through(hub)
        spent = hub.metric(SPENT)
        assert spent > 300_000
        assert "of 300 kB a month" in await asyncio.to_thread(hub.admin, "/debug/status")
        assert "of 300 kB a month" in await asyncio.to_thread(hub.admin, "/")
        assert warnings(hub) == 1
        await asyncio.to_thread(hub.stop)
        await asyncio.to_thread(hub.start)
        await until(lambda: hub.metric(SPENT) >= spent, "the count outlives the restart")
        await read_through(hub)
        assert warnings(hub) == 0, "it was told in this month"
    (event,) = events_of()
    found = event["reason"], event["involvedObject"]["kind"], event["type"]
    assert found == ("LinkBudgetSpent", "Node", "Warning")
