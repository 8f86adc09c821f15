"""A user at a shell observes each request and event of a running hub, and starts drills of its link."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp

from addons.ui.commands.shell import run
from tests.addons.support.samples import cloud_service, config_map, service
from tests.cloud.scriptable import ScriptableCloud
from tests.hub.support.process import ROOT, SLACK, Hub, started
from tests.hub.support.streams import listed, watching

SERVICES = "/api/v1/services"


async def observe(hub: Hub, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            str(ROOT / "addons" / "command.py"),
            "observe",
            "--admin",
            hub.admin_url,
            *arguments,
        ),
        env={"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )


async def past(hub: Hub, *arguments: str) -> str:
    asking = await observe(hub, *arguments)
    output, _ = await asking.communicate()
    assert asking.returncode == 0
    return output.decode()


async def test_observe_prints_requests_responses_and_hidden_objects_of_a_component(
    cloud: ScriptableCloud, tmp_path: Path
) -> None:
    cloud.store.create(config_map({"filter_discardcloudservice": "kube-proxy/services#list;watch"}))
    cloud.store.create(service("web"))
    token = "secret-token-of-a-caller"
    async with started(Hub(tmp_path, cloud.url, flags=("--access-log",))) as hub:
        following = await observe(hub, "--component", "kube-proxy", "--events", "--follow", "-o", "json")
        assert following.stdout is not None
        async with (
            asyncio.timeout(SLACK),
            aiohttp.ClientSession(headers={"User-Agent": "kube-proxy/v1"}) as session,
        ):
            # The first line shows that the stream has started; earlier lines are not sent.
            asking = asyncio.create_task(following.stdout.readline())
            while not asking.done():
                async with session.get(f"{hub.url}/version?token={token}") as answer:
                    await answer.read()
                await asyncio.wait([asking], timeout=0.2)
            assert json.loads(await asking)["resource"] == "/version"
        async with watching(hub.url, SERVICES, component="kube-proxy", resourceVersion="0") as events:
            await events.first("ADDED", "web")
            cloud.store.create(cloud_service("lb"))
            cloud.store.create(service("api"))
            await events.first("ADDED", "api")
            lines: list[dict[str, Any]] = []
            async with asyncio.timeout(SLACK):
                while not lines or lines[-1]["name"] != "api":
                    lines.append(json.loads(await following.stdout.readline()))
        following.terminate()
        await following.wait()
        by_name = {each["name"]: each for each in lines}
        assert by_name["lb"]["verb"] == "HIDDEN"
        assert by_name["lb"]["filters"][0]["reasons"] == ["load-balancer"]
        assert by_name["api"]["source"] == "cloud"
        # Afterwards, as text; neither output contains secrets.
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession() as session:
            url = f"{hub.url}/api/v1/namespaces/default/configmaps?access_token={token}"
            async with session.post(url, headers=headers, data=token) as answer:
                await answer.read()
        text = await past(hub, "--since", "1h", "--events", "-o", "wide")
        assert "watch" in text
        assert "HIDDEN" in text
        assert "create    configmaps default" in text
        assert "HIDDEN" not in await past(hub)
        await asyncio.to_thread(hub.process.wait_for_line, "create    configmaps default", SLACK)
        for shown in (text, "\n".join(hub.process.lines), await past(hub, "-o", "json")):
            assert token not in shown


async def link(hub: Hub, *arguments: str) -> int:
    """Run `edgehub link`; return its exit status."""
    return await asyncio.to_thread(run, ["link", *arguments, "--admin", hub.admin_url])


async def test_an_offline_drill_cuts_the_link_and_ends(cloud: ScriptableCloud, tmp_path: Path) -> None:
    async def relayed(hub: Hub) -> int:
        """Return the status of a read that no copy can answer."""
        async with aiohttp.ClientSession() as session, session.get(f"{hub.url}/api/v1/events") as answer:
            await answer.read()
            return answer.status

    cloud.store.create(service("web"))
    proxy = "kube-proxy"
    async with started(Hub(tmp_path, cloud.url, flags=("--allow-drills",))) as hub:
        assert await relayed(hub) == 200
        async with watching(hub.url, SERVICES, component=proxy, resourceVersion="0") as events:
            await events.until(lambda seen: [each.name for each in seen] == ["web"])
            assert await link(hub, "offline") == 0
            await asyncio.to_thread(hub.wait_for_metric, "edgehub_server_up", 0, SLACK)
            assert await relayed(hub) == 503
            assert list(await listed(hub.url, SERVICES, component=proxy, resourceVersion="0")) == ["web"]
            # Metrics, log and pages all show the drill.
            assert await asyncio.to_thread(hub.metric, "edgehub_drill") == 1
            assert 'class="drill">Drill: the link is offline until ' in await asyncio.to_thread(
                hub.admin, "/"
            )
            status = json.loads(await asyncio.to_thread(hub.admin, "/debug/status"))
            assert (status["cloud"]["up"], status["drill"]["link"]) == (False, "offline")
            await asyncio.to_thread(
                hub.process.wait_for_line, "WARNING .*drill started: the link is offline", 1
            )
            await asyncio.to_thread(hub.process.wait_for_line, "offline since .*a drill: the link is", SLACK)
            # Changes in the cloud arrive after the drill, over the watch that stayed open.
            cloud.store.create(service("api"))
            assert await link(hub, "online") == 0
            await asyncio.to_thread(hub.wait_for_metric, "edgehub_server_up", 1, SLACK)
            await events.first("ADDED", "api")
            assert not events.ended
        assert await relayed(hub) == 200
        assert await asyncio.to_thread(hub.metric, "edgehub_drill") == 0
