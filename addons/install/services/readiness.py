"""Waits of an installation: until the hub is ready, stays ready or is gone, and until the node is Ready through it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable

from addons.install.cloud import get, local
from addons.settings import Settings
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.json_type import Json

INTERVAL = 0.2
"""Seconds between polls: the hub, in another process, sends no notification."""
TIMEOUT = 5.0
"""Seconds for one answer of the hub, or of kubelet."""
FAILED_POLLS = 15
"""Maximum consecutive failed polls while the hub's health is watched: some seconds."""
SAMPLE = re.compile(r"^edgehub_requests_total\{(?P<labels>.*)\} (?P<value>\S+)$", re.MULTILINE)
KUBELET_HEALTH = "http://127.0.0.1:10248"
"""URL of kubelet's default `healthzBindAddress` and `healthzPort`."""
KUBELET_WAIT = 30.0
"""Seconds in which kubelet must become healthy before `uninstall` ends containers that kubelet must restart."""
WRITES = frozenset({"create", "patch", "update"})
KUBELET_RESOURCES = frozenset({"leases", "nodes"})
"""Resources that only kubelet writes through the plain port."""


class NotReadyError(Exception):
    """Raised when a deadline has passed; the message names the missing condition."""


def runs_on() -> str:
    """Default for `ended`: the process is not checked."""
    return ""


async def start_of(hub: Settings) -> str | None:
    """Return the start time of the running hub; "" from an older hub without this field, None without an answer."""
    async with local(hub.admin_url) as admin:
        try:
            return await _start(admin)
        except (StatusError, Unreachable):
            return None


async def wait_for_hub(
    hub: Settings, deadline: float, ended: Callable[[], str] = runs_on, *, previous: str | None = None
) -> None:
    """Return when the hub is ready. NotReadyError after `deadline` (monotonic seconds).

    `ended` returns the last log lines of an ended hub, which ends the wait, or "" while it runs. `previous` is the
    start time of a hub that must be replaced first and may still answer: kubelet takes some time for that.
    """
    async with local(hub.admin_url) as admin:
        missing = "the hub has not started"
        while True:
            try:
                # On a new node kubelet registers the Node later, through this hub.
                await admin.request("GET", "/readyz?exclude=node", accept="*/*", timeout=TIMEOUT)
                if previous is None or await _start(admin) != previous:
                    return
                missing = "the previous hub still answers"
            except StatusError as error:
                missing = f"the hub is not ready: {error.message}"
            except Unreachable as error:
                missing = f"the hub does not answer at {hub.admin_url}: {error}"
            await pause(missing, deadline, ended)


async def watch_hub(hub: Settings, seconds: float, ended: Callable[[], str] = runs_on) -> None:
    """Return when the hub has been ready for this many seconds. NotReadyError if it restarts or fails.

    Single requests may fail: a busy node answers slowly.
    """
    end, started, faults = time.monotonic() + seconds, await start_of(hub), 0
    async with local(hub.admin_url) as admin:
        while time.monotonic() < end or faults:
            await pause("the hub has ended", end + FAILED_POLLS * TIMEOUT, ended)
            try:
                await admin.request("GET", "/readyz?exclude=node", accept="*/*", timeout=TIMEOUT)
                now, faults = await _start(admin), 0
            except StatusError as error:
                missing, faults = f"the hub is no longer ready: {error.message}", faults + 1
            except Unreachable as error:
                missing, faults = f"the hub does not answer any more: {error}", faults + 1
            else:
                if now != started:
                    raise NotReadyError("the hub has ended, and was restarted")
            if faults > FAILED_POLLS:
                raise NotReadyError(missing)


async def reaches_cloud(hub: Settings) -> bool:
    """Whether the running hub reaches the cloud."""
    async with local(hub.admin_url) as admin:
        try:
            cloud = (await _status(admin)).get("cloud", {})
            return bool(cloud.get("up") and cloud.get("reached"))
        except (StatusError, Unreachable):
            return False


async def wait_for_cloud(hub: Settings, deadline: float) -> None:
    """Return when the hub reaches the cloud. NotReadyError at the deadline."""
    while not await reaches_cloud(hub):
        await pause("the hub does not reach the cloud, which the previous one did", deadline)


async def wait_for_healthy_kubelet(deadline: float) -> None:
    """Return when kubelet reports itself healthy. NotReadyError at the deadline."""
    async with local(KUBELET_HEALTH) as kubelet:
        while True:
            try:
                await kubelet.request("GET", "/healthz", accept="*/*", timeout=TIMEOUT)
                return
            except (StatusError, Unreachable) as error:
                await pause(f"kubelet is not healthy: {error}", deadline)


async def wait_for_kubelet(hub: Settings, deadline: float) -> None:
    """Return when kubelet has written through the hub since the hub started. NotReadyError at the deadline."""
    async with local(hub.admin_url) as admin:
        while True:
            try:
                if await _count(admin):
                    return
                missing = "kubelet has not called the hub"
            except (StatusError, Unreachable) as error:
                missing = f"the hub does not answer any more: {error}"
            await pause(missing, deadline)


async def count_writes(hub: Settings) -> float:
    """Return how often kubelet has written its Node or Lease through the hub. Unreachable if no hub answers."""
    async with local(hub.admin_url) as admin:
        return await _count(admin)


async def wait_until_gone(hub: Settings, deadline: float) -> None:
    """Return when the hub's admin port no longer answers. NotReadyError at the deadline."""
    async with local(hub.admin_url) as admin:
        while hub.admin_port:
            try:
                await admin.request("GET", "/healthz", accept="*/*", timeout=TIMEOUT)
            except Unreachable:
                return
            except StatusError:
                pass
            await pause("the hub still runs", deadline)


async def wait_for_node(
    hub: Settings, node: str, writes: float, deadline: float, ended: Callable[[], str] = runs_on
) -> None:
    """Return when kubelet has written more often than `writes` and the node is Ready. NotReadyError otherwise.

    `ended` is as in `wait_for_hub`, but for kubelet.
    """
    async with local(hub.admin_url) as admin, local(hub.plain_url) as plain:
        while True:
            try:
                if await _count(admin) <= writes:
                    missing = "kubelet has not called the hub"
                elif reason := why_not_ready(await get(plain, f"/api/v1/nodes/{node}")):
                    missing = f"the node is not Ready: {reason}"
                else:
                    return
            except (StatusError, Unreachable) as error:
                missing = f"cannot read whether the node is Ready: {error}"
            await pause(missing, deadline, ended)


def why_not_ready(node: Json) -> str:
    """Return why a Node is not Ready; "" if it is."""
    for condition in node.get("status", {}).get("conditions", ()):
        if condition["type"] == "Ready":
            return (
                "" if condition["status"] == "True" else str(condition.get("message") or condition["status"])
            )
    return "kubelet has not reported Ready yet"


async def _start(admin: Client) -> str:
    return str((await _status(admin)).get("started", ""))


async def _status(admin: Client) -> Json:
    answer = await admin.request("GET", "/debug/status", timeout=TIMEOUT)
    return dict(json.loads(answer.body))


async def _count(admin: Client) -> float:
    page = (await admin.request("GET", "/metrics", accept="*/*", timeout=TIMEOUT)).body.decode()
    total = 0.0
    for sample in SAMPLE.finditer(page):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', sample["labels"]))
        if (
            labels["resource"] in KUBELET_RESOURCES
            and labels["verb"] in WRITES
            and labels["code"].startswith("2")
        ):
            total += float(sample["value"])
    return total


async def pause(missing: str, deadline: float, ended: Callable[[], str] = runs_on) -> None:
    """Wait until the next poll. NotReadyError with `missing` if the hub has `ended` or the deadline has passed."""
    if log_lines := await asyncio.to_thread(ended):
        raise NotReadyError(f"{missing}; {log_lines}")
    if time.monotonic() >= deadline:
        raise NotReadyError(missing)
    await asyncio.sleep(INTERVAL)
