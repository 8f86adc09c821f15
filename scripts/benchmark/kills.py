"""`scripts/bench --kills N`: a hub killed N times in a storm of writes, before a real cloud that comes and goes.

A writer reports on one object at a time and counts: each write has the next number, and fields that follow from it.
What was answered counts as accepted, what broke off may have been. The cloud's own watch and the state at checkpoints
show what became of the writes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp

from kube.json_type import Json
from tests.cloud.build import ensure_binaries
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.link import Link
from tests.cloud.ports import LOOPBACK
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub

NODE, PODS = "node-1", 3
KUBELET = {"User-Agent": "kubelet/v1", "Accept": "application/json"}
STRATEGIC = "application/strategic-merge-patch+json"
LABEL = "node.kubernetes.io/instance-type"
"""A label that a kubelet may change with its status."""
CHECK_EVERY = 10
"""Kills between two checkpoints."""
SETTLED = 60.0
"""Seconds in which everything that waits must reach the cloud."""
RULES = "/api/v1/namespaces/kube-system/configmaps"
EVENTS = "/api/v1/namespaces/default/events"


@dataclass(slots=True)
class Written:
    """What is known of the writes of one object, by their numbers."""

    accepted: int = 0
    last: int = 0
    """The last that was sent, accepted or not."""
    seen: int = 0
    """The last that the cloud showed."""


@dataclass(slots=True)
class Figures:
    """The counts of a run, and what went wrong."""

    kills: int = 0
    accepted: int = 0
    offline: int = 0
    """Accepted while the link was refused."""
    unknown: int = 0
    replayed: int = 0
    refused: int = 0
    waits: list[float] = field(default_factory=list)
    """Seconds to each answer."""
    faults: list[str] = field(default_factory=list)


def flips(number: int) -> str:
    """A state that follows from a write's number, and comes back to former values."""
    return "True" if number * 2654435761 % 7 < 4 else "False"


def node_status(number: int) -> Json:
    states = {"Storm": "True", "Flip": flips(number)}
    conditions = [{"type": kind, "status": state, "message": str(number)} for kind, state in states.items()]
    conditions[1].pop("message")
    return {"metadata": {"labels": {LABEL: f"n{number}"}}, "status": {"conditions": conditions}}


def pod_status(number: int) -> Json:
    return {"status": {"message": str(number), "reason": flips(number)}}


def event(name: str, count: int) -> Json:
    about = {"kind": "Node", "name": NODE}
    metadata = {"name": name, "namespace": "default"}
    made = {"apiVersion": "v1", "kind": "Event", "metadata": metadata}
    return {**made, "involvedObject": about, "reason": "Storm", "count": count}


def found_in(obj: Json) -> tuple[int, bool]:
    """The number of the write that an object shows, and whether its other fields follow from it."""
    if "involvedObject" in obj:
        return obj.get("count", 0), True
    status = obj.get("status", {})
    if obj["metadata"]["name"] != NODE:
        number = int(status.get("message") or 0)
        return number, not number or status.get("reason") == flips(number)
    conditions = {each["type"]: each for each in status.get("conditions", [])}
    if "Storm" not in conditions:
        return 0, True
    number = int(conditions["Storm"]["message"])
    label = obj["metadata"].get("labels", {}).get(LABEL)
    return number, (conditions["Flip"]["status"], label) == (flips(number), f"n{number}")


class Storm:
    """The writers, the cloud's watches, and the checks."""

    def __init__(self, hub: Hub, cloud: RealCloud, link: Link, seed: int) -> None:
        self._hub, self._cloud, self._link = hub, cloud, link
        self._random = Random(seed)
        self._written: dict[str, Written] = {}
        """By the path of the object."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        self._goes = asyncio.Event()
        self._idle = asyncio.Event()
        self._busy = 0
        self.found = Figures()

    async def run(self, kills: int) -> None:
        pods = [f"/api/v1/namespaces/default/pods/storm-{each}" for each in range(PODS)]
        work: list[Awaitable[None]] = [
            self._report("/api/v1/nodes/" + NODE, node_status),
            *(self._report(path, pod_status) for path in pods),
            *(self._make_events(str(writer)) for writer in range(2)),
            *(self._watch(f"/api/v1/{each}") for each in ("nodes", "namespaces/default/pods")),
            self._watch(EVENTS),
        ]
        tasks = [asyncio.ensure_future(each) for each in work]
        try:
            for number in range(kills):
                await self._kill(number)
                if (number + 1) % CHECK_EVERY == 0 or number + 1 == kills:
                    await self._check()
                    print(f"{number + 1} kills, {len(self.found.faults)} faults", file=sys.stderr)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._session.close()

    async def _kill(self, number: int) -> None:
        """One life of the hub, with or without an outage, to a moment at random."""
        if self._random.random() < 0.7:
            await asyncio.to_thread(self._link.refuse)
        await asyncio.to_thread(lambda: self._hub.start(ready=False))
        self._goes.set()
        await asyncio.sleep(self._random.uniform(0.05, 0.8))
        await asyncio.to_thread(self._link.carry)
        if number % 5 == 0:
            await asyncio.to_thread(self._edit_rules, number)
        # Two probes, a second apart, bring the cloud back; the replay follows.
        await asyncio.sleep(self._random.uniform(0, 2.6))
        with suppress(Exception):
            self.found.replayed += int(
                await asyncio.to_thread(self._hub.metric, "edgehub_journal_replayed_total")
            )
        await asyncio.to_thread(self._hub.kill)
        self._goes.clear()
        self.found.kills += 1

    def _edit_rules(self, number: int) -> None:
        data = {"discardcloudservice": "kube-proxy" if number % 2 else "kube-proxy,coredns"}
        self._cloud.apply([{"apiVersion": "v1", "kind": "ConfigMap", "data": data, "metadata": {
            "name": "yurt-hub-cfg", "namespace": "kube-system"}}])  # fmt: skip

    async def _check(self) -> None:
        """Let all that waits reach the cloud, and compare."""
        self._goes.clear()
        await asyncio.to_thread(self._link.carry)
        await asyncio.to_thread(self._hub.start)
        async with asyncio.timeout(SETTLED):
            while self._busy:
                await self._idle.wait()
        await asyncio.to_thread(self._hub.wait_for_metric, "edgehub_server_up", 1, SETTLED)
        await asyncio.to_thread(self._hub.wait_for_metric, "edgehub_journal_entries", 0, SETTLED)
        for path, written in self._written.items():
            with suppress(LookupError):
                obj = await self._get(path)
                number, fits = found_in(obj)
                if not written.accepted <= number <= written.last:
                    self._fault(f"{path}: {written.accepted} was accepted, the cloud has {number}")
                elif not fits:
                    self._fault(f"{path}: write {number} is not whole in the cloud: {json.dumps(obj)}")
                continue
            if written.accepted:
                self._fault(f"{path}: {written.accepted} was accepted, the cloud has none")
        self._written = {path: each for path, each in self._written.items() if not path.startswith(EVENTS)}
        await asyncio.to_thread(self._hub.kill)
        self.found.kills += 1

    async def _get(self, path: str) -> Json:
        answer = await asyncio.to_thread(self._cloud.admin.request, "GET", path)
        if answer.status != 200:
            raise LookupError(path)
        found: Json = json.loads(answer.body)
        return found

    def _fault(self, text: str) -> None:
        self.found.faults.append(f"after {self.found.kills} kills: {text}")
        print(self.found.faults[-1], file=sys.stderr)

    async def _report(self, path: str, status: Callable[[int], Json]) -> None:
        written = self._written.setdefault(path, Written())
        while True:
            await self._write("PATCH", f"{path}/status", written, status(written.last + 1))

    async def _make_events(self, writer: str) -> None:
        number = 0
        while True:
            number += 1
            path = f"{EVENTS}/storm.{writer}.{number}"
            written = self._written[path] = Written()
            while not written.accepted:
                await self._write("POST", EVENTS, written, event(path.rpartition("/")[2], 1), number=1)
            for count in range(2, 2 + self._random.randrange(6)):
                await self._write("PATCH", path, written, {"count": count})

    async def _write(
        self, method: str, target: str, written: Written, body: Json, *, number: int = 0
    ) -> None:
        """Send one write, when the storm goes; note what is known of it then."""
        await self._goes.wait()
        number = written.last = number or written.last + 1
        is_offline, began = self._link.mode != "pass", time.perf_counter()
        headers = {**KUBELET, "Content-Type": STRATEGIC if method == "PATCH" else "application/json"}
        self._busy += 1
        try:
            asked = self._session.request(method, self._hub.url + target, json=body, headers=headers)
            async with asked as answer:
                said = await answer.read()
            # A creation whose first answer was lost.
            if answer.status in (200, 201) or (method, answer.status) == ("POST", 409):
                written.accepted = number
                self.found.accepted += 1
                self.found.offline += is_offline
                self.found.waits.append(time.perf_counter() - began)
            else:
                self.found.refused += 1
                if answer.status < 500 and answer.status not in (404, 429):
                    self._fault(f"{method} {target}: {answer.status} {said[:200]!r}")
        except (aiohttp.ClientError, TimeoutError):
            self.found.unknown += 1
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()
                self._idle.clear()
        await asyncio.sleep(self._random.uniform(0.005, 0.06))

    async def _watch(self, path: str) -> None:
        """Look at each version that the cloud has had of each object."""
        command = ("get", "--raw", f"{path}?watch=1&resourceVersion=0")
        while True:
            watch = await asyncio.create_subprocess_exec(
                *self._cloud.kubectl_command(*command), stdout=asyncio.subprocess.PIPE, limit=1 << 24
            )
            assert watch.stdout is not None
            try:
                async for line in watch.stdout:
                    self._look(json.loads(line))
            finally:
                with suppress(ProcessLookupError):
                    watch.kill()
                await watch.wait()

    def _look(self, change: Json) -> None:
        obj = change["object"]
        if change["type"] not in ("ADDED", "MODIFIED") or "metadata" not in obj:
            return
        kind = "events" if "involvedObject" in obj else "nodes" if obj["metadata"]["name"] == NODE else "pods"
        namespace = "" if kind == "nodes" else "namespaces/default/"
        written = self._written.get(f"/api/v1/{namespace}{kind}/{obj['metadata']['name']}")
        if written is None:
            return
        number, fits = found_in(obj)
        if number < written.seen:
            self._fault(f"{obj['metadata']['name']}: {number} went over {written.seen}")
        elif not fits:
            self._fault(f"{obj['metadata']['name']}: write {number} is not whole: {json.dumps(obj)[:2000]}")
        written.seen = max(number, written.seen)


def measure(kills: int, seed: int) -> Figures:
    """Kill a hub so often."""
    with tempfile.TemporaryDirectory() as place, RealCloud(Path(place) / "cloud", ensure_binaries()) as cloud:
        cloud.apply(HUB_RBAC)
        account = {"metadata": {"name": "default"}}
        cloud.admin.post("/api/v1/namespaces/default/serviceaccounts", account)
        cloud.admin.post("/api/v1/nodes", {"metadata": {"name": NODE}})
        for number in range(PODS):
            spec = {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}
            cloud.admin.post(
                "/api/v1/namespaces/default/pods", {"metadata": {"name": f"storm-{number}"}, "spec": spec}
            )
        with Link(cloud.host, cloud.port) as link:
            hub = Hub(
                *(Path(place) / "hub", f"https://{LOOPBACK}:{link.port}"),
                node=NODE,
                kubeconfig=cloud.node_kubeconfig(NODE),
            )
            try:
                return asyncio.run(_measured(hub, cloud, link, kills, seed))
            finally:
                hub.stop()


async def _measured(hub: Hub, cloud: RealCloud, link: Link, kills: int, seed: int) -> Figures:
    await asyncio.to_thread(hub.start)
    storm = Storm(hub, cloud, link, seed)
    # As kubelet: what the hub has never shown it cannot answer alone.
    async with aiohttp.ClientSession(hub.url, headers=KUBELET) as http:
        for what in (
            f"nodes?fieldSelector=metadata.name%3D{NODE}",
            f"pods?fieldSelector=spec.nodeName%3D{NODE}",
        ):
            async with http.get(f"/api/v1/{what}&resourceVersion=0") as answer:
                assert answer.status == 200, await answer.text()
    await asyncio.sleep(1)
    await asyncio.to_thread(hub.kill)
    await storm.run(kills)
    return storm.found


def report(found: Figures) -> None:
    """Print the figures; exit status 1 where a write was lost or went over a newer one."""
    waits = sorted(found.waits)
    for name, value in (
        ("kills", found.kills),
        ("writes accepted", found.accepted),
        ("  of them without the cloud", found.offline),
        ("writes whose answer was lost", found.unknown),
        ("writes refused", found.refused),
        ("entries replayed, at least", found.replayed),
        ("faults", len(found.faults)),
        ("answer, p50 ms", waits[len(waits) // 2] * 1e3 if waits else 0),
        ("answer, p99 ms", waits[len(waits) * 99 // 100] * 1e3 if waits else 0),
    ):
        print(f"{name:32}{value:10.0f}")
    print(*found.faults[:20], sep="\n")
    if found.faults or not found.accepted:
        sys.exit(1)
