"""Waits until the hub is ready, and until kubelet keeps its node Ready through the hub."""

from __future__ import annotations

import asyncio
import re
import time

from addons.install.cloud import get, local
from addons.settings import Settings
from kube.errors import StatusError
from kube.http.client import Client, Unreachable
from kube.json_type import Json

INTERVAL = 0.2
"""Seconds between two looks: the hub, another process, notifies nobody when it is ready."""
SAMPLE = re.compile(r"^edgehub_requests_total\{(?P<labels>.*)\} (?P<value>\S+)$", re.MULTILINE)
WRITES = frozenset({"create", "patch", "update"})
OF_KUBELET = frozenset({"leases", "nodes"})
"""Writes that kubelet alone sends to the plain port."""


class NotReadyError(Exception):
    """The deadline has passed; the message says what was missing last."""


async def wait_for_hub(hub: Settings, deadline: float) -> None:
    """Return when the hub is ready. `deadline` is in monotonic seconds; NotReadyError when it is over."""
    async with local(hub.admin_url) as admin:
        missing = "the hub has not started"
        while True:
            try:
                await admin.request("GET", "/readyz", accept="*/*", timeout=5.0)
                return
            except StatusError as error:
                missing = f"the hub is not ready: {error.message}"
            except Unreachable as error:
                missing = f"the hub does not answer at {hub.admin_url}: {error}"
            await _pause(missing, deadline)


async def count_writes(hub: Settings) -> float:
    """How often kubelet has written its node or its lease through the hub; Unreachable where no hub answers."""
    async with local(hub.admin_url) as admin:
        return await _count(admin)


async def wait_until_gone(hub: Settings, deadline: float) -> None:
    """Return when nobody answers at the hub's admin port, NotReadyError when the time is over before."""
    async with local(hub.admin_url) as admin:
        while hub.admin_port:
            try:
                await admin.request("GET", "/healthz", accept="*/*", timeout=5.0)
            except Unreachable:
                return
            except StatusError:
                pass
            await _pause("the hub still runs", deadline)


async def wait_for_node(hub: Settings, node: str, writes: float, deadline: float) -> None:
    """Return when kubelet has written more often than `writes` and the node is Ready; NotReadyError otherwise."""
    async with local(hub.admin_url) as admin, local(hub.plain_url) as plain:
        while True:
            try:
                if await _count(admin) <= writes:
                    missing = "kubelet has not spoken to the hub"
                elif reason := why_not_ready(await get(plain, f"/api/v1/nodes/{node}")):
                    missing = f"the node is not Ready: {reason}"
                else:
                    return
            except (StatusError, Unreachable) as error:
                missing = f"the hub cannot tell whether the node is Ready: {error}"
            await _pause(missing, deadline)


def why_not_ready(node: Json) -> str:
    """What a Node says of its condition Ready; "" when it is."""
    for condition in node.get("status", {}).get("conditions", ()):
        if condition["type"] == "Ready":
            return (
                "" if condition["status"] == "True" else str(condition.get("message") or condition["status"])
            )
    return "kubelet has not said so yet"


async def _count(admin: Client) -> float:
    page = (await admin.request("GET", "/metrics", accept="*/*", timeout=5.0)).body.decode()
    total = 0.0
    for sample in SAMPLE.finditer(page):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', sample["labels"]))
        if labels["resource"] in OF_KUBELET and labels["verb"] in WRITES and labels["code"].startswith("2"):
            total += float(sample["value"])
    return total


async def _pause(missing: str, deadline: float) -> None:
    if time.monotonic() >= deadline:
        raise NotReadyError(missing)
    await asyncio.sleep(INTERVAL)
