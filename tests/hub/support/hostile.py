"""The attacks of `tests.hub.support.attacks` on a hub, with measurements of its memory and of kubelet's responses."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from scripts.benchmark.load import tree_megabytes
from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.cloud.rights import account, rights, rule
from tests.hub.support import pauses
from tests.hub.support.process import ROOT, Hub
from tests.support.background import beside

PERIOD = 0.25
"""Seconds between two requests of kubelet."""
PAUSES = "pauses.jsonl"
"""The file of `tests.hub.support.pauses`, in the hub's folder."""
GRACE = 60.0
"""Seconds that the attackers get to end, and kubelet for one response."""
READERS = "hostile-readers"
GRANT = rights(
    READERS,
    [rule("", "services configmaps", "*"), rule("discovery.k8s.io", "endpointslices", "*")],
    account("default", "hostile-reader"),
)
"""The permissions of the attacker's token: those of a pod that creates Services, their endpoints and ConfigMaps."""


@dataclass(slots=True)
class Siege:
    """The measurements: the maximum megabytes of the hub's process tree, and the seconds of each of kubelet's
    responses."""

    peak: float = 0.0
    answers: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """kubelet's requests that were not answered with 200."""
    attacks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Completed repetitions of each attack, and those that the hub stopped."""
    pauses: list[pauses.Pause] = field(default_factory=list)
    """The longest callbacks of the hub's loop, if the hub is run by `pauses`."""


async def besiege(hub: Hub, cloud: RealCloud, folder: Path, seconds: float, *attacks: str) -> Siege:
    """Run the attackers for `seconds`, with the named attacks or all, together with kubelet."""
    await asyncio.to_thread(cloud.apply, GRANT)
    reader, nobody = [
        await asyncio.to_thread(cloud.token, "default", name) for name in ("hostile-reader", "hostile-nobody")
    ]
    arguments = [str(hub.port), str(hub.tls_port), reader, nobody, str(seconds), *attacks]
    command = [sys.executable, "-m", "tests.hub.support.attacks", *arguments]
    siege = Siege()
    environ = {"PYTHONPATH": str(ROOT)}
    attackers = await asyncio.to_thread(Process, "attackers", command, folder, environ)
    try:
        async with beside(_kubelet(hub, siege)):
            said = await asyncio.to_thread(attackers.wait_for_line, r"^\{", seconds + GRACE)
    finally:
        await asyncio.to_thread(attackers.kill)
    siege.pauses = pauses.read(folder / PAUSES)
    siege.attacks = {name: (counts[0], counts[1]) for name, counts in json.loads(said).items()}
    return siege


async def _kubelet(hub: Hub, siege: Siege) -> None:
    """Send a relayed read and a read of a view, each on a new connection: an overloaded hub would refuse these
    first."""
    timeout = aiohttp.ClientTimeout(total=GRACE)
    connector = aiohttp.TCPConnector(force_close=True)
    headers = {"User-Agent": "kubelet/v1", "Accept": "application/vnd.kubernetes.protobuf"}
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as http:
        while True:
            for path in (f"/api/v1/nodes/{hub.node}", "/api/v1/services?resourceVersion=0"):
                began = time.monotonic()
                try:
                    async with http.get(hub.url + path) as answer:
                        await answer.read()
                        if answer.status != 200:
                            siege.failures.append(f"{path}: {answer.status}")
                except (aiohttp.ClientError, TimeoutError) as error:
                    siege.failures.append(f"{path}: {error!r}")
                siege.answers.append(time.monotonic() - began)
            siege.peak = max(siege.peak, tree_megabytes(hub.process.pid))
            await asyncio.sleep(PERIOD)
