"""`scripts/demo --ui web|console`: a node to look at, with an interface of mitmproxy, until a person ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from pathlib import Path

from kube.json_type import Json
from scripts.demonstration.cluster import Cluster, embedded_cluster
from scripts.demonstration.components import LEASES, Components
from tests.hub.support.process import ROOT, Hub

NODE = "node-1"
CHANGE_INTERVAL = 10.0
"""Seconds between two changes in the cloud, so that open watches have something to show."""
RULES = {"filter_servicetopology": "flanneld/endpointslices#list;watch", "cache_agents": "inventory"}
WORDS = """\
A node with kube-proxy, kubelet, flanneld and a program `inventory`, behind its hub.
  The hub's page:          {admin}
  From another terminal:   scripts/hub status --admin {admin}
  An outage, rehearsed:    scripts/hub link offline --admin {admin}
docs/seeing.md leads through it. {end} ends it."""
ENDS = {"web": "Ctrl-C", "console": "In the console, q and y"}


async def show(interface: str) -> int:
    """Run the hub with its interface on this terminal until it ends, or until somebody ends the demo; its status."""
    with tempfile.TemporaryDirectory(prefix="edgehub-demo-") as place:
        folder = Path(place)
        async with embedded_cluster(folder) as cluster:
            for path, document in extras():
                await cluster.write(path, document)
            settings = ("--set", "web_open_browser=false") if interface == "web" else ()
            flags = ("--ui", interface, *(("--", *settings) if settings else ()))
            hub = Hub(folder, cluster.url, node=NODE, kubeconfig=cluster.kubeconfig(NODE), flags=flags)
            print(WORDS.format(admin=hub.admin_url, end=ENDS[interface]), flush=True)
            process = await asyncio.create_subprocess_exec(
                *hub.command, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, _end, process)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _end, process)
            work = [*Components(hub.url, NODE).all(), change(cluster)]
            tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
            status = await process.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return status


def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()


def extras() -> list[tuple[str, Json]]:
    """The rules, ConfigMaps that the program reads, and the node's lease; each with the path of its collection."""
    rules: Json = {"metadata": {"name": "yurt-hub-cfg", "namespace": "kube-system"}, "data": RULES}
    lease: Json = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NODE, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": NODE},
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
    """Services come to the cloud, every other one of a type that kube-proxy on a node of the edge does not need."""
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
