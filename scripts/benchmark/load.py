"""The shared load of `scripts/bench`: a cluster of EndpointSlices, and clients that measure a proxy in front of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from kube.json_type import Json
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.build import ensure_binaries
from tests.cloud.fixtures import HUB_NODES, HUB_RBAC
from tests.cloud.real import RealCloud
from tests.support.background import beside

SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
NAMESPACE = "default"
PROTOBUF = f"{Encoding.PROTOBUF},{Encoding.JSON}"
HEADERS = {
    "User-Agent": "kube-proxy/v1.36.3 (linux/amd64)",
    "Accept": PROTOBUF,
    "Accept-Encoding": "identity",
}
TICKS = os.sysconf("SC_CLK_TCK")
REST = 12.0
"""Seconds before memory is read: the hub collects garbage every second, and closes late connections every five."""


ENDPOINT_SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
SLICE = f"{ENDPOINT_SLICES}/svc-{{}}-abcde"
SERVICE = f"{SERVICES}/svc-{{}}"
THREADS = 8
"""Concurrent requests."""


def service(number: int) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": f"svc-{number}",
            "annotations": {"openyurt.io/topologyKeys": "kubernetes.io/hostname"},
        },
        "spec": {"ports": [{"name": "http", "port": 80}], "selector": {"app": f"svc-{number}"}},
    }


def endpoint_slice(number: int, endpoints: int) -> Json:
    """Return a slice with half of its endpoints on this node; the hub filters out the others."""
    made: list[Json] = [
        {
            "addresses": [f"10.{number % 200}.{pod // 250}.{pod % 250 + 1}"],
            "nodeName": "node-1" if pod % 2 else "node-2",
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": f"svc-{number}-{pod:05d}-xyzab"},
        }
        for pod in range(endpoints)
    ]
    return slice_of(f"svc-{number}", made, name=f"svc-{number}-abcde")


def slice_of(service: str, endpoints: list[Json], name: str = "") -> Json:
    """Return a slice of a Service; by default it has the Service's name."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name or service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    }


@contextmanager
def new_cloud() -> Iterator[tuple[RealCloud, Path]]:
    """Start a separate control plane, and make a folder for the programs that use it."""
    with tempfile.TemporaryDirectory() as root, RealCloud(Path(root) / "cloud", ensure_binaries()) as cloud:
        yield cloud, Path(root)


@contextmanager
def hubs_cloud() -> Iterator[tuple[RealCloud, Path]]:
    """Start a control plane that grants hubs their permissions, and make a folder for hubs."""
    with new_cloud() as (cloud, folder):
        for manifest in (HUB_RBAC, HUB_NODES):
            cloud.apply(manifest)
        yield cloud, folder


def fill(cloud: RealCloud, services: int, endpoints: int) -> None:
    """Create the objects that the bench reads."""
    cloud.admin.post("/api/v1/nodes", {"metadata": {"name": "node-1"}})
    post_all(cloud, SERVICES, map(service, range(services)))
    post_all(cloud, ENDPOINT_SLICES, (endpoint_slice(number, endpoints) for number in range(services)))


def post_all(cloud: RealCloud, path: str, objects: Iterable[Json]) -> None:
    """Create objects concurrently."""
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(partial(cloud.admin.post, path), objects))


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of a load: the proxy's CPU seconds per operation, and the seconds of each operation."""

    cpu: float
    seconds: list[float]

    @property
    def p50(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p99(self) -> float:
        return p99(self.seconds)


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


def cpu_seconds(pid: int) -> float:
    """Return the user and system seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_megabytes(pid: int, which: str = "VmRSS") -> float:
    """Return the resident memory of one process; with `VmHWM` its maximum so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(which):
            return int(line.split()[1]) / 1024
    return 0.0


def tree_megabytes(pid: int, which: str = "VmRSS") -> float:
    """Return the resident megabytes of a process and its descendants, as `resident_megabytes` does for one."""
    total = 0.0
    for process in family(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            total += resident_megabytes(process, which)
    return total


def family(pid: int) -> set[int]:
    """Return a process and its descendants."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    processes, news = {pid}, {pid}
    while news:
        news = {child for child, parent in parents.items() if parent in news} - processes
        processes |= news
    return processes


async def listed_slices(http: aiohttp.ClientSession, url: str) -> tuple[bytes, int]:
    """List all slices in protobuf, as a hub relays them; return the body and its resourceVersion."""
    async with http.get(f"{url}{SLICES}?resourceVersion=0", headers=HEADERS) as answer:
        body = await answer.read()
        assert answer.status == 200, body[:300]
        return body, codec_for(Encoding(answer.content_type)).decode_list(body).version


@asynccontextmanager
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False, read_bufsize=2**20) as made:
        yield made


async def lists(url: str, pid: int, rounds: int) -> Spent:
    """Measure one client that lists all slices repeatedly."""
    seconds: list[float] = []
    async with session() as http:
        for number in range(rounds + 2):
            if number == 2:
                cpu = cpu_seconds(pid)
            began = time.perf_counter()
            async with http.get(f"{url}{SLICES}?resourceVersion=0", headers=HEADERS) as answer:
                body = await answer.read()
                assert answer.status == 200, body[:300]
            if number >= 2:
                seconds.append(time.perf_counter() - began)
    return Spent((cpu_seconds(pid) - cpu) / rounds, seconds)


async def gets(url: str, pid: int, clients: int, each: int) -> tuple[Spent, float]:
    """Measure clients that get one small object repeatedly; also return the total rate, in requests per second."""
    path = "/api/v1/nodes/node-1"
    seconds: list[float] = []

    async def client() -> None:
        async with session() as http:
            for _ in range(each):
                began = time.perf_counter()
                async with http.get(
                    url + path, headers={**HEADERS, "User-Agent": "kubelet/v1.36.3"}
                ) as answer:
                    body = await answer.read()
                    assert answer.status == 200, body[:300]
                seconds.append(time.perf_counter() - began)

    await asyncio.gather(*(client() for _ in range(clients)))
    seconds.clear()
    cpu, began = cpu_seconds(pid), time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    rate = len(seconds) / (time.perf_counter() - began)
    return Spent((cpu_seconds(pid) - cpu) / len(seconds), seconds), rate


async def watches(url: str, pid: int, cloud: RealCloud, watchers: int, updates: int) -> Spent:
    """Watch all slices with many watchers, while slices are updated in sequence; return the seconds from an update to
    each watcher."""
    sent: dict[str, float] = {}
    seconds: list[float] = []
    opened, done = asyncio.Semaphore(0), asyncio.Event()
    expected = watchers * updates

    async def watcher(http: aiohttp.ClientSession, version: int) -> None:
        query = f"watch=true&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=600"
        async with http.get(f"{url}{SLICES}?{query}", headers=HEADERS) as answer:
            assert answer.status == 200, await answer.read()
            opened.release()
            async for came, began in updates_of(answer, sent):
                seconds.append(came - began)
                if len(seconds) == expected:
                    done.set()

    async with session() as http:
        _, version = await listed_slices(http, url)
        async with beside(*(watcher(http, version) for _ in range(watchers))):
            for _ in range(watchers):
                await opened.acquire()
            await asyncio.sleep(0.5)
            cpu = cpu_seconds(pid)
            await asyncio.to_thread(_update, cloud, updates, sent)
            await asyncio.wait_for(done.wait(), 60)
            spent = cpu_seconds(pid) - cpu
    return Spent(spent / expected, seconds)


async def events_alone(url: str, pid: int, cloud: RealCloud, updates: int) -> float:
    """Measure the hub's CPU seconds per event of a source without a watcher: Services, by which the hub filters the
    slices that a client has listed."""
    async with session() as http:
        await listed_slices(http, url)
    await asyncio.sleep(REST)
    idle = cpu_seconds(pid)
    await asyncio.sleep(REST)
    cpu = cpu_seconds(pid)
    began = time.perf_counter()
    await asyncio.to_thread(_update, cloud, updates, {}, SERVICE)
    await asyncio.sleep(REST)
    spent, seconds = cpu_seconds(pid) - cpu, time.perf_counter() - began
    return max(0.0, spent - (cpu - idle) / REST * seconds) / updates


async def updates_of(
    answer: aiohttp.ClientResponse, sent: Mapping[str, float]
) -> AsyncIterator[tuple[float, float]]:
    """Return the arrival and sending times of each watch event that one of the bench's updates caused."""
    codec = codec_for(Encoding(answer.content_type))
    reader = codec.frames()
    async for chunk in answer.content.iter_any():
        now = time.perf_counter()
        for frame in reader.feed(chunk):
            began = sent.get(codec.peek(frame.raw).name) if frame.type == "MODIFIED" else None
            if began is not None:
                yield now, began


def _update(cloud: RealCloud, updates: int, sent: dict[str, float], path_of: str = SLICE) -> None:
    """Update slices, at most one every 20 ms, as in a rolling upgrade."""
    for number in range(updates):
        name = f"svc-{number}-abcde"
        path = path_of.format(number)
        patch: Any = {"metadata": {"labels": {"bench": str(time.time_ns())}}}
        sent[name] = time.perf_counter()
        cloud.admin.patch(path, patch)
        time.sleep(max(0.0, 0.02 - (time.perf_counter() - sent[name])))


def print_rows(rows: Iterable[tuple[str, float]]) -> None:
    """Print a load's figures, a name and a figure on each line; counts without decimals."""
    for name, value in rows:
        print(f"{name:52}{value:10}" if isinstance(value, int) else f"{name:52}{value:10.2f}")


def waiting(ready: Callable[[], bool], timeout: float = 60.0) -> float:
    """Return the seconds until `ready` returns true; TimeoutError if that takes too long."""
    began = time.perf_counter()
    while not ready():
        if time.perf_counter() - began > timeout:
            raise TimeoutError
        time.sleep(0.005)
    return time.perf_counter() - began
