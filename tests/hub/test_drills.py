"""An outage that a person rehearses on a running hub: what is away, what goes on, who is told, and its end."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from addons.ui.commands.shell import run
from addons.ui.flows.annotations import ALARM
from tests.addons.support.samples import config_map, service
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import SLACK, Hub
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
    hub = Hub(tmp_path, cloud.url, flags=("--allow-drills",))
    await asyncio.to_thread(hub.start)
    try:
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
    finally:
        await asyncio.to_thread(hub.stop)


async def test_a_drill_ends_by_itself(cloud: ScriptableCloud, tmp_path: Path) -> None:
    """Beside an interface, where each flow of the time has it in red."""
    web = f"http://{LOOPBACK}:{free_port()}"
    settings = (f"web_port={urlsplit(web).port}", "web_password=w", "web_open_browser=false")
    flags = ("--ui", "web", "--", *(word for each in settings for word in ("--set", each)))
    hub = Hub(tmp_path, cloud.url, flags=flags, program=("tests.hub.support.impatient",))

    async def comments() -> list[str]:
        """The comments of relayed flows, the oldest first."""
        headers = {"Authorization": "Bearer w"}
        async with aiohttp.ClientSession() as session, session.get(web + "/flows", headers=headers) as answer:
            return [
                each["comment"] for each in await answer.json() if each["request"]["path"].endswith("/events")
            ]

    await asyncio.to_thread(hub.start)
    try:
        assert await link(hub, "offline") == 0  # a minute, for what is to be seen meanwhile
        await asyncio.to_thread(hub.wait_for_metric, "edgehub_server_up", 0, SLACK)
        assert await relayed(hub) == 503
        assert 'class="drill">Drill: the link is offline until ' in await asyncio.to_thread(hub.admin, "/")
        assert (await comments())[0].startswith(f"{ALARM} DRILL offline ▸ ")
        # One that takes its place, and is over soon.
        assert await link(hub, "offline", "--minutes", "1") == 0
        await asyncio.to_thread(hub.wait_for_metric, "edgehub_drill", 0, SLACK)
        await asyncio.to_thread(hub.process.wait_for_line, "the drill is over", SLACK)
        await asyncio.to_thread(hub.wait_for_metric, "edgehub_server_up", 1, SLACK)
        assert await relayed(hub) == 200
        assert 'class="drill"' not in await asyncio.to_thread(hub.admin, "/")
        assert "DRILL" not in (await comments())[-1]
    finally:
        await asyncio.to_thread(hub.stop)


async def test_a_slow_link_is_rehearsed(cloud: ScriptableCloud, tmp_path: Path) -> None:
    for number in range(20):
        made = config_map({"text": "x" * 2000})
        made["metadata"]["name"] = f"made-{number}"
        cloud.store.create(made)
    hub = Hub(tmp_path, cloud.url, flags=("--allow-drills",))
    await asyncio.to_thread(hub.start)
    try:
        assert await link(hub, "slow", "320", "100", "--minutes", "1") == 0
        began = time.monotonic()
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{hub.url}/api/v1/configmaps", headers={"Accept-Encoding": "identity"}) as answer,
        ):
            size = len(await answer.read())
        assert answer.status == 200
        assert time.monotonic() - began > size * 8 / 320_000 > 1, "no faster than the link"
        assert await asyncio.to_thread(hub.metric, "edgehub_server_up") == 1
    finally:
        await asyncio.to_thread(hub.stop)


async def test_nobody_rehearses_without_leave(cloud: ScriptableCloud, tmp_path: Path) -> None:
    hub = Hub(tmp_path, cloud.url)
    await asyncio.to_thread(hub.start)
    try:
        assert await link(hub, "offline") == 1
        assert await relayed(hub) == 200
    finally:
        await asyncio.to_thread(hub.stop)
