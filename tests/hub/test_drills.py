"""An outage that a person rehearses on a running hub: what is away, what goes on, who is told, and its end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp

from addons.ui.commands.shell import run
from tests.addons.support.samples import service
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import SLACK, Hub, started
from tests.hub.support.streams import listed, watching

SERVICES = "/api/v1/services"
PROXY = "kube-proxy"


async def link(hub: Hub, *words: str) -> int:
    """The exit status of `edgehub link`."""
    return await asyncio.to_thread(run, ["link", *words, "--admin", hub.admin_url])


async def relayed(hub: Hub) -> int:
    """The status of a read that no copy answers."""
    async with aiohttp.ClientSession() as session, session.get(f"{hub.url}/api/v1/events") as answer:
        await answer.read()
        return answer.status


async def test_an_outage_is_rehearsed(cloud: ScriptableCloud, tmp_path: Path) -> None:
    cloud.store.create(service("web"))
    async with started(Hub(tmp_path, cloud.url, flags=("--allow-drills",))) as hub:
        assert await relayed(hub) == 200
        async with watching(hub.url, SERVICES, component=PROXY, resourceVersion="0") as events:
            await events.until(lambda seen: [each.name for each in seen] == ["web"])
            assert await link(hub, "offline") == 0
            await asyncio.to_thread(hub.wait_for_metric, "edgehub_server_up", 0, SLACK)
            assert await relayed(hub) == 503
            assert list(await listed(hub.url, SERVICES, component=PROXY, resourceVersion="0")) == ["web"]
            # Metrics, log and pages all show the drill.
            assert await asyncio.to_thread(hub.metric, "edgehub_drill") == 1
            assert 'class="drill">Drill: the link is offline until ' in await asyncio.to_thread(
                hub.admin, "/"
            )
            status = json.loads(await asyncio.to_thread(hub.admin, "/debug/status"))
            assert (status["cloud"]["up"], status["drill"]["link"]) == (False, "offline")
            await asyncio.to_thread(
                hub.process.wait_for_line, "WARNING .*a drill begins: the link is offline", 1
            )
            await asyncio.to_thread(hub.process.wait_for_line, "offline since .*a drill: the link is", SLACK)
            # What the cloud does meanwhile comes when the drill is over, over the watch that stayed open.
            cloud.store.create(service("api"))
            assert await link(hub, "online") == 0
            await asyncio.to_thread(hub.wait_for_metric, "edgehub_server_up", 1, SLACK)
            await events.first("ADDED", "api")
            assert not events.ended
        assert await relayed(hub) == 200
        assert await asyncio.to_thread(hub.metric, "edgehub_drill") == 0
