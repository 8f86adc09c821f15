"""`scripts/demo --ui web|console`: runs a node with an interface of mitmproxy until a person ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import tempfile
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import orjson

from kube.json_type import Json
from kube.objects.object_patches import STRATEGIC_MERGE_PATCH
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from scripts.demonstration.cluster import Cluster, embedded_cluster
from tests.cloud.ports import free_port
from tests.cloud.scriptable.protobuf import encode_message
from tests.hub.support.process import ROOT, Hub
from tests.support.background import beside

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals from a user or a program, and from a terminal that closes."""
OWN_SESSION = ("setsid",)
"""Runs a hub beyond the reach of Ctrl-C on the demo's terminal, because the demo ends its hubs in order."""
NODE = "node-1"
WEB_PORT = 8081
"""The port of mitmweb."""
CHANGE_INTERVAL = 10.0
"""Seconds between two changes in the cloud, so that open watches show events."""
RULES = {"filter_servicetopology": "flanneld/endpointslices#list;watch", "cache_agents": "inventory"}
INTRODUCTION = """\
A node with kube-proxy, kubelet, flanneld and a program `inventory`, behind its hub.
  The hub's page:          {admin}
  From another terminal:   scripts/hub status --admin {admin}
  An outage, rehearsed:    scripts/hub link offline --admin {admin}
docs/seeing.md leads through it. {end} ends it."""
ENDS = {"web": "Ctrl-C", "console": "In the console, q and y"}
SERVICES = "/api/v1/services"
SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
PROTOBUF = f"{Encoding.PROTOBUF},{Encoding.JSON}"
"""The Accept header of Kubernetes' components."""
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
STATUS_INTERVAL = 5.0
"""Seconds between two statuses of the node; kubelet's own interval is ten."""
READ_INTERVAL = 7.0
"""Seconds between two lists of a program that never watches."""
AGAIN = 1.0
"""Seconds until a component retries."""


class Components:
    """kube-proxy, kubelet, flanneld and a program that only lists, as an edge node runs them."""

    def __init__(self, hub: str, node: str) -> None:
        """`hub` is the URL of the plain port."""
        self._hub, self._node = hub, node

    def all(self) -> list[Coroutine[None, None, None]]:
        """Return a coroutine for each component; none of them ends."""
        return [
            self._follow("kube-proxy", SERVICES, PROTOBUF),
            self._follow("kube-proxy", SLICES, PROTOBUF),
            self._follow("flanneld", "/api/v1/nodes", PROTOBUF),
            self._follow("kubelet", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self._node}", PROTOBUF),
            self._live(),
            self._follow("inventory", SERVICES),
            self._read("inventory", "/api/v1/namespaces/default/configmaps?resourceVersion=0"),
        ]

    async def _follow(self, component: str, path: str, accept: str = Encoding.JSON) -> None:
        """List, then watch; repeat when the watch ends."""
        mark = "&" if "?" in path else "?"
        async with self._session(component, accept) as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError, ValueError):
                    async with session.get(f"{self._hub}{path}{mark}resourceVersion=0") as answer:
                        codec = codec_for(Encoding(answer.content_type))
                        version = codec.decode_list(await answer.read()).version
                    query = f"{mark}watch=true&allowWatchBookmarks=true&resourceVersion={version}"
                    async with session.get(f"{self._hub}{path}{query}") as answer:
                        async for _ in answer.content.iter_any():
                            pass
                await asyncio.sleep(AGAIN)

    async def _live(self) -> None:
        """Send kubelet's heartbeats in its forms: the node's status as a JSON patch, the lease as a protobuf PUT."""
        node, lease = f"/api/v1/nodes/{self._node}", f"{LEASES}/{self._node}"
        async with self._session("kubelet", PROTOBUF) as session:
            await self._send(session, "GET", lease)
            while True:
                now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                await self._send(session, "GET", f"{node}?resourceVersion=0")
                patch = orjson.dumps(_status(now))
                await self._send(session, "PATCH", f"{node}/status", patch, STRATEGIC_MERGE_PATCH)
                await self._send(session, "PUT", lease, _lease(self._node, now), Encoding.PROTOBUF)
                await asyncio.sleep(STATUS_INTERVAL)

    async def _send(
        self,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = "",
    ) -> None:
        headers = {"Content-Type": content_type} if content_type else {}
        with contextlib.suppress(aiohttp.ClientError):
            async with session.request(method, self._hub + path, data=body, headers=headers) as answer:
                await answer.read()

    async def _read(self, component: str, path: str) -> None:
        async with self._session(component) as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(self._hub + path) as answer:
                        await answer.read()
                await asyncio.sleep(READ_INTERVAL)

    def _session(self, component: str, accept: str = Encoding.JSON) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=None)
        headers = {"User-Agent": f"{component}/demo", "Accept": accept}
        return aiohttp.ClientSession(headers=headers, timeout=timeout)


def _status(now: str) -> Json:
    ready = {"status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    conditions = [{"type": "Ready", **ready, "lastHeartbeatTime": now}]
    return {"status": {"conditions": conditions}}


def _lease(node: str, now: str) -> bytes:
    """Return the body of a lease renewal."""
    api_version, kind = "coordination.k8s.io/v1", "Lease"
    spec = {
        "holderIdentity": node,
        "leaseDurationSeconds": 40,
        "renewTime": now.replace("Z", ".000000Z"),
    }
    metadata = {"name": node, "namespace": "kube-node-lease"}
    lease: Json = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
    return codec_for(Encoding.PROTOBUF).encode_single(api_version, kind, encode_message(lease))


async def show(interface: str) -> int:
    """Run the hub with its interface on this terminal until it ends, or a signal ends the demo; return its status."""
    with tempfile.TemporaryDirectory(prefix="edgehub-demo-") as temporary:
        folder = Path(temporary)
        async with embedded_cluster(folder) as cluster:
            for path, document in extras():
                await cluster.write(path, document)
            settings = (
                ("--set", "web_open_browser=false", "--set", f"web_port={_web_port()}")
                if interface == "web"
                else ()
            )
            flags = ("--ui", interface, *(("--", *settings) if settings else ()))
            hub = Hub(folder, cluster.url, node=NODE, kubeconfig=cluster.kubeconfig(NODE), flags=flags)
            print(INTRODUCTION.format(admin=hub.admin_url, end=ENDS[interface]), flush=True)
            apart = OWN_SESSION if interface == "web" else ()
            process = await asyncio.create_subprocess_exec(
                *apart, *hub.command, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )
            for ending in ENDINGS:
                asyncio.get_running_loop().add_signal_handler(ending, _end, process)
            async with beside(*Components(hub.url, NODE).all(), change(cluster)):
                status = await process.wait()
                return status if status >= 0 else 128 - status


def _web_port() -> int:
    """Return mitmweb's default port, or a free one if that is taken: mitmweb prints its address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", WEB_PORT))
        except OSError:
            return free_port()
    return WEB_PORT


def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()


def extras() -> list[tuple[str, Json]]:
    """Return the rules, ConfigMaps that the program reads, and the node's lease; each with the path of its
    collection."""
    rules: Json = {"metadata": {"name": "yurt-hub-cfg", "namespace": "kube-system"}, "data": RULES}
    lease: Json = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NODE, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40},
    }
    stock: list[Json] = [
        {"metadata": {"name": f"stock-{number}", "namespace": "default"}, "data": {"text": "shelf " * 200}}
        for number in range(40)
    ]
    return [
        ("/api/v1/namespaces/kube-system/configmaps", rules),
        (LEASES, lease),
        *(("/api/v1/namespaces/default/configmaps", name) for name in stock),
    ]


async def change(cluster: Cluster) -> None:
    """Create Services in the cloud; every second one has a type that kube-proxy on an edge node does not need."""
    number = 0
    while True:
        await asyncio.sleep(CHANGE_INTERVAL)
        number += 1
        kind = "LoadBalancer" if number % 2 else "ClusterIP"
        await cluster.write(
            "/api/v1/namespaces/default/services",
            {
                "kind": "Service",
                "metadata": {"name": f"made-{number}", "namespace": "default"},
                "spec": {"type": kind, "ports": [{"name": "http", "port": 80}]},
            },
        )
