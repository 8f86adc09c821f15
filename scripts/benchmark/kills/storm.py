"""The load of one node: the writes to it, the kills of its hub, and the checkpoints."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import aiohttp

from kube.concurrency.notifier import Notifier
from kube.json_type import Json
from tests.cloud.link import Link, Mode
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub
from tests.support.background import beside

LABEL = "node.kubernetes.io/instance-type"
"""A label that a kubelet may change together with its status."""


@dataclass(slots=True)
class Written:
    """The writes of one object, by number."""

    accepted: int = 0
    last: int = 0
    """The last number sent, accepted or not."""
    seen: int = 0
    """The last number that the cloud showed."""
    wrong: list[str] = field(default_factory=list)
    """The errors since the last checkpoint."""


@dataclass(slots=True)
class Figures:
    """The counts of a run, and its errors."""

    kills: int = 0
    accepted: int = 0
    offline: int = 0
    """Writes accepted while the link was refused."""
    unknown: int = 0
    replayed: int = 0
    refused: int = 0
    excused: int = 0
    """Errors of objects for which a hub had logged that the disk took longer than a second."""
    waits: list[float] = field(default_factory=list)
    """Seconds to each answer."""
    faults: list[str] = field(default_factory=list)

    def fault(self, text: str) -> None:
        self.faults.append(f"after {self.kills} kills: {text}")
        print(self.faults[-1], file=sys.stderr)


def flips(number: int) -> str:
    """Derive a condition's state from a write's number; it returns to earlier values."""
    return "True" if number * 2654435761 % 7 < 4 else "False"


def node_status(number: int) -> Json:
    states = {"Storm": "True", "Flip": flips(number)}
    conditions = [{"type": kind, "status": state, "message": str(number)} for kind, state in states.items()]
    conditions[1].pop("message")
    return {"metadata": {"labels": {LABEL: f"n{number}"}}, "status": {"conditions": conditions}}


def pod_status(number: int) -> Json:
    return {"status": {"message": str(number), "reason": flips(number)}}


def event(node: str, name: str, count: int) -> Json:
    metadata = {"name": name, "namespace": "default"}
    made = {"apiVersion": "v1", "kind": "Event", "metadata": metadata}
    return {**made, "involvedObject": {"kind": "Node", "name": node}, "reason": "Storm", "count": count}


def found_in(obj: Json) -> tuple[int, bool]:
    """Return the number of the write that an object shows, and whether its other fields agree with it."""
    status = obj.get("status", {})
    match obj["kind"]:
        case "Event":
            return obj.get("count", 0), True
        case "Pod":
            number = int(status.get("message") or 0)
            return number, not number or status.get("reason") == flips(number)
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    if "Storm" not in conditions:
        return 0, True
    number = int(conditions["Storm"]["message"])
    label = obj["metadata"].get("labels", {}).get(LABEL)
    return number, (conditions["Flip"]["status"], label) == (flips(number), f"n{number}")


def path_of(obj: Json) -> str:
    """Return the API path of a node, pod or event."""
    metadata = obj["metadata"]
    scope = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
    return f"/api/v1/{scope}{obj['kind'].lower()}s/{metadata['name']}"


PODS = 3
KUBELET = {"User-Agent": "kubelet/v1", "Accept": "application/json"}
STRATEGIC = "application/strategic-merge-patch+json"
CHECK_EVERY = 10
"""Kills between two checkpoints."""
SETTLED = 180.0
"""Seconds in which all pending writes must reach the cloud, on busy cores."""
TAIL = 20
"""Lines of the hub's log that a report quotes about a pending write."""
DISK_IS_LATE = re.compile(rb"answers before a write of (\S+) is on disk|keeps an older write of (\S+):")
"""The hub's log line about an object whose write took the disk longer than a second: a kill may then lose it."""
RULES = "/api/v1/namespaces/kube-system/configmaps"
EVENTS = "/api/v1/namespaces/default/events"
RULE_SETS = ("kube-proxy,coredns", "kube-proxy")


class Storm:
    """The load and the kills of one node."""

    def __init__(
        self,
        hub: Hub,
        cloud: RealCloud,
        link: Link,
        moved: Notifier,
        figures: Figures,
        seed: str,
    ) -> None:
        """`moved` is notified of each event of the cloud's watch."""
        self.written: dict[str, Written] = {}
        """The last write of each object, by path."""
        self._hub, self._cloud, self._link = hub, cloud, link
        self._moved, self._found = moved, figures
        self._random = Random(seed)
        self._node = f"/api/v1/nodes/{hub.node}"
        self._pods = [f"/api/v1/namespaces/default/pods/{name}" for name in pods_of(hub.node)]
        self._events_written: dict[str, str] = {}
        """The path of the event that each writer updates."""
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        self._goes = asyncio.Event()
        self._idle = asyncio.Event()
        self._busy = self._logged = 0

    async def run(self, next_kill: Callable[[], int | None]) -> None:
        """Kill and restart the hub until `next_kill` returns None."""
        work = (
            self._report(self._node, node_status),
            *(self._report(path, pod_status) for path in self._pods),
            *(self._make_events(str(writer)) for writer in range(2)),
        )
        async with self._session, beside(*work):
            lives = 0
            while (number := next_kill()) is not None:
                await self._kill(number)
                lives += 1
                if lives % CHECK_EVERY == 0:
                    await self._check()
            await self._check()

    async def begin(self) -> None:
        """Read as kubelet does: in an outage the hub answers only reads that it has served before."""
        await asyncio.to_thread(self._hub.start)
        node = self._hub.node
        for selected in (
            f"nodes?fieldSelector=metadata.name%3D{node}",
            f"pods?fieldSelector=spec.nodeName%3D{node}",
        ):
            target = f"{self._hub.url}/api/v1/{selected}&resourceVersion=0"
            async with self._session.get(target, headers=KUBELET) as answer:
                assert answer.status == 200, await answer.text()
        await asyncio.to_thread(self._hub.wait_until_stored, node, 2)
        await asyncio.to_thread(self._hub.kill)

    async def _kill(self, number: int) -> None:
        """Run the hub once, with or without an outage, and kill it at a random moment."""
        if self._random.random() < 0.7:
            await asyncio.to_thread(self._link.refuse)
        await asyncio.to_thread(lambda: self._hub.start(ready=False))
        self._goes.set()
        await asyncio.sleep(self._random.uniform(0.05, 0.8))
        await asyncio.to_thread(self._link.carry)
        if number % 5 == 0:
            data = {"discardcloudservice": RULE_SETS[number % 2]}
            await asyncio.to_thread(self._cloud.admin.patch, f"{RULES}/yurt-hub-cfg", {"data": data})
        # Two probes, a second apart, bring the cloud back; the replay follows.
        await asyncio.sleep(self._random.uniform(0, 2.6))
        with suppress(Exception):
            replayed = await asyncio.to_thread(self._hub.metric, "edgehub_journal_replayed_total")
            self._found.replayed += int(replayed)
        await asyncio.to_thread(self._hub.kill)
        self._goes.clear()
        self._found.kills += 1

    async def _check(self) -> None:
        """Wait until all pending writes have reached the cloud, and compare."""
        await asyncio.to_thread(self._link.carry)
        await asyncio.to_thread(self._hub.start)
        async with asyncio.timeout(SETTLED):
            while self._busy:
                await self._idle.wait()
        with suppress(TimeoutError):  # then the cloud's current state shows what is lost
            async with asyncio.timeout(SETTLED):
                while any(write.seen < write.accepted for write in self.written.values()):
                    await self._moved.wait()
        try:
            await asyncio.to_thread(self._hub.wait_for_metric, "edgehub_journal_entries", 0, SETTLED)
        except TimeoutError as error:
            log = (self._hub.folder / "hub.log").read_text().splitlines()[-TAIL:]
            self._found.fault("\n".join([f"{self._hub.node}: {error}: {self._hub.debug('journal')}", *log]))
        objects = await asyncio.to_thread(self._in_cloud)
        excused = self._late_on_disk()
        for path, written in self.written.items():
            self._compare(path, written, objects.get(path))
            for text in written.wrong:
                if path in excused:
                    self._found.excused += 1
                else:
                    self._found.fault(text)
            written.wrong.clear()
        lasting = {self._node, *self._pods, *self._events_written.values()}
        self.written = {path: write for path, write in self.written.items() if path in lasting}
        await asyncio.to_thread(self._hub.kill)
        self._found.kills += 1

    def _late_on_disk(self) -> set[str]:
        """Return the objects for which the hub has logged a late disk since the last checkpoint."""
        with (self._hub.folder / "hub.log").open("rb") as log:
            log.seek(self._logged)
            text = log.read()
        self._logged += len(text)
        return {name.decode() for groups in DISK_IS_LATE.findall(text) for name in groups if name}

    def _in_cloud(self) -> dict[str, Json]:
        """Return the objects of this node in the cloud, by path."""
        admin = self._cloud.admin
        objects = [admin.get(path) for path in (self._node, *self._pods)]
        listed = admin.get(EVENTS, fieldSelector=f"involvedObject.name={self._hub.node},reason=Storm")[
            "items"
        ]
        return {path_of(item): item for item in (*objects, *({"kind": "Event", **item} for item in listed))}

    def _compare(self, path: str, written: Written, obj: Json | None) -> None:
        if obj is None:
            if written.accepted:
                written.wrong.append(f"{path}: {written.accepted} was accepted, the cloud has none")
            return
        number, fits = found_in(obj)
        if not written.accepted <= number <= written.last:
            written.wrong.append(f"{path}: {written.accepted} was accepted, the cloud has {number}")
        elif not fits:
            written.wrong.append(f"{path}: write {number} is not whole in the cloud: {obj}")

    async def _report(self, path: str, status: Callable[[int], Json]) -> None:
        written = self.written.setdefault(path, Written())
        while True:
            await self._write("PATCH", f"{path}/status", written, status(written.last + 1))

    async def _make_events(self, writer: str) -> None:
        number = 0
        while True:
            number += 1
            path = self._events_written[writer] = f"{EVENTS}/{self._hub.node}.{writer}.{number}"
            written = self.written[path] = Written()
            while not written.accepted:
                await self._write(
                    "POST", EVENTS, written, event(self._hub.node, path.rpartition("/")[2], 1), number=1
                )
            for count in range(2, 2 + self._random.randrange(6)):
                await self._write("PATCH", path, written, {"count": count})

    async def _write(
        self, method: str, target: str, written: Written, body: Json, *, number: int = 0
    ) -> None:
        """Send one write under load, and record its outcome."""
        await self._goes.wait()
        number = written.last = number or written.last + 1
        is_offline, began = self._link.mode is not Mode.PASS, time.perf_counter()
        headers = {**KUBELET, "Content-Type": STRATEGIC if method == "PATCH" else "application/json"}
        self._busy += 1
        try:
            exchange = self._session.request(method, self._hub.url + target, json=body, headers=headers)
            async with exchange as answer:
                said = await answer.read()
            # A creation whose first answer was lost.
            if answer.status in (200, 201) or (method, answer.status) == ("POST", 409):
                written.accepted = number
                self._found.accepted += 1
                self._found.offline += is_offline
                self._found.waits.append(time.perf_counter() - began)
            else:
                self._found.refused += 1
                if answer.status < 500 and answer.status not in (404, 429):
                    self._found.fault(f"{method} {target}: {answer.status} {said[:200]!r}")
        except (aiohttp.ClientError, TimeoutError):
            self._found.unknown += 1
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()
                self._idle.clear()
        await asyncio.sleep(self._random.uniform(0.005, 0.06))


def pods_of(node: str) -> list[str]:
    """Return the names of a node's pods."""
    return [f"{node}-{number}" for number in range(PODS)]
