"""Runs the loads of several nodes concurrently against one control plane, and prints the errors found."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import orjson

from kube.concurrency.notifier import Notifier
from kube.json_type import Json
from scripts.benchmark.kills.storm import RULE_SETS, RULES, Figures, Storm, found_in, path_of, pods_of
from scripts.benchmark.load import new_cloud
from tests.cloud.fixtures import HUB_RBAC
from tests.cloud.link import Link
from tests.cloud.ports import LOOPBACK
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub
from tests.support.background import beside

NODES = 6
"""The number of nodes that keeps two cores busy: a hub mostly waits to be killed."""
WATCHED = ("nodes", "pods", "events")
MAX_QUOTED = 2000


class CloudWatch:
    """A watch at the cloud that checks each version of each object."""

    def __init__(self, cloud: RealCloud, storms: Sequence[Storm], moved: Notifier) -> None:
        """`moved` is notified of each event."""
        self._cloud, self._storms, self._moved = cloud, storms, moved

    async def run(self) -> None:
        """Watch until cancelled."""
        await asyncio.gather(
            *(self._watch(f"/api/v1/{resource}?watch=1&resourceVersion=0") for resource in WATCHED)
        )

    async def _watch(self, target: str) -> None:
        while True:
            watch = await asyncio.create_subprocess_exec(
                *self._cloud.kubectl_command("get", "--raw", target),
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 24,
            )
            assert watch.stdout is not None
            try:
                async for line in watch.stdout:
                    change = orjson.loads(line)
                    if change["type"] in ("ADDED", "MODIFIED"):
                        self._look(change["object"])
                        self._moved.notify()
            finally:
                with suppress(ProcessLookupError):
                    watch.kill()
                await watch.communicate()

    def _look(self, obj: Json) -> None:
        path = path_of(obj)
        written = next((storm.written[path] for storm in self._storms if path in storm.written), None)
        if written is None:
            return
        number, fits = found_in(obj)
        if number < written.seen:
            written.wrong.append(f"{path}: {number} went over {written.seen}")
        elif not fits:
            written.wrong.append(f"{path}: write {number} is not whole: {orjson.dumps(obj)[:MAX_QUOTED]!r}")
        written.seen = max(number, written.seen)


def measure(kills: int, seed: int) -> Figures:
    """Kill hubs this many times."""
    with ExitStack() as stack:
        cloud, root = stack.enter_context(new_cloud())
        nodes = [f"node-{number}" for number in range(NODES)]
        _prepare(cloud, nodes)
        hubs = []
        for node in nodes:
            link = stack.enter_context(Link(cloud.host, cloud.port))
            server, kubeconfig = f"https://{LOOPBACK}:{link.port}", cloud.node_kubeconfig(node)
            hub = Hub(root / node, server, node=node, kubeconfig=kubeconfig)
            stack.callback(hub.stop)
            hubs.append((hub, link))
        return asyncio.run(_measured(hubs, cloud, kills, seed))


def _prepare(cloud: RealCloud, nodes: list[str]) -> None:
    cloud.apply(HUB_RBAC)
    cloud.admin.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    cloud.admin.post(
        RULES, {"metadata": {"name": "yurt-hub-cfg"}, "data": {"discardcloudservice": RULE_SETS[0]}}
    )
    for node in nodes:
        cloud.admin.post("/api/v1/nodes", {"metadata": {"name": node}})
        for pod in pods_of(node):
            spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
            cloud.admin.post("/api/v1/namespaces/default/pods", {"metadata": {"name": pod}, "spec": spec})


async def _measured(hubs: list[tuple[Hub, Link]], cloud: RealCloud, kills: int, seed: int) -> Figures:
    figures = Figures()

    def numbers() -> Iterator[int]:
        for number in range(kills):
            yield number
            if (number + 1) % 50 == 0:
                print(f"{figures.kills} kills, {len(figures.faults)} faults", file=sys.stderr)

    numbered = numbers()
    with ThreadPoolExecutor(4 * len(hubs)) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        moved = Notifier()
        storms = [Storm(hub, cloud, link, moved, figures, f"{seed} {hub.node}") for hub, link in hubs]
        async with beside(CloudWatch(cloud, storms, moved).run()):
            await asyncio.gather(*(storm.begin() for storm in storms))
            async with asyncio.TaskGroup() as running:
                for storm in storms:
                    running.create_task(storm.run(lambda: next(numbered, None)))
    return figures


def report(figures: Figures) -> None:
    """Print the figures; exit status 1 if a write was lost, or overwrote a newer one."""
    waits = sorted(figures.waits)
    for name, value in (
        ("kills", figures.kills),
        ("writes accepted", figures.accepted),
        ("  of them without the cloud", figures.offline),
        ("writes whose answer was lost", figures.unknown),
        ("writes refused", figures.refused),
        ("entries replayed, at least", figures.replayed),
        ("faults excused by a slow disk", figures.excused),
        ("faults", len(figures.faults)),
        ("answer, p50 ms", waits[len(waits) // 2] * 1e3 if waits else 0),
        ("answer, p99 ms", waits[len(waits) * 99 // 100] * 1e3 if waits else 0),
    ):
        print(f"{name:32}{value:10.0f}")
    print(*figures.faults[:20], sep="\n")
    if figures.faults or not figures.accepted:
        sys.exit(1)
