"""`scripts/demo`: shows the hub's functions on a terminal in under a minute.

Two nodes of two pools have a hub each, with one cloud. The demo shows a list as each kube-proxy sees it, a rule that is
edited in the ConfigMap while a watch is open, and the path of a write to the cloud. `--real` uses the real control
plane, and adds a hollow kubelet and a hollow kube-proxy. `--ui` runs one node until a person ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from addons.ui.commands.shell import end_output
from kube.json_type import Json
from scripts.demonstration.cluster import NODES, Cluster, embedded_cluster, real_cluster, slice_of_web
from scripts.demonstration.node import ENDINGS, OWN_SESSION, show
from tests.hub.support.process import Hub

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
CONFIG = "/api/v1/namespaces/kube-system/configmaps"
NEXT = """
Done. What to look at next:
  scripts/demo --ui web    a node with its components in a browser: what each says and gets, and the hub's own page
  docs/rules.md            the rules, and `scripts/hub rules try`, which says what an edit would change
  scripts/hub --kubeconfig ~/.kube/config --plain-users $USER --node my-node --state-dir ~/.local/state/edgehub --ui web
                           the hub before a cluster of yours; then: kubectl --server http://127.0.0.1:10261 get pods
  docs/install.md          a node that lives behind its hub"""


async def get_list(url: str, component: str) -> list[Json]:
    """List slices; return that of the Service."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(
            url, params={"resourceVersion": "0"}, headers={"User-Agent": f"{component}/demo"}
        ) as answer,
    ):
        answer.raise_for_status()
        items: list[Json] = (await answer.json())["items"]
    return [item for item in items if _is_web(item)]


@asynccontextmanager
async def watch(url: str, component: str) -> AsyncIterator[AsyncIterator[tuple[str, Json]]]:
    """Watch slices from now on; yield the events of the Service's slices."""
    query = {"watch": "true", "resourceVersion": "0"}
    headers = {"User-Agent": f"{component}/demo"}
    async with (
        aiohttp.ClientSession(read_bufsize=2**20) as session,
        session.get(url, params=query, headers=headers) as answer,
    ):
        answer.raise_for_status()

        async def events() -> AsyncIterator[tuple[str, Json]]:
            async for line in answer.content:
                event = json.loads(line)
                if _is_web(event["object"]):
                    yield event["type"], event["object"]

        yield events()


async def send(method: str, url: str, document: Json, authorization: str) -> int:
    """Send a write; return the status code."""
    headers = {"Authorization": authorization} if authorization else {}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, json=document, headers=headers) as answer,
    ):
        await answer.read()
        return answer.status


def _is_web(item: Json) -> bool:
    labels: Json = item["metadata"].get("labels") or {}
    return labels.get("kubernetes.io/service-name") == "web"


def say(text: str = "") -> None:
    print(text, flush=True)


def step(number: int, text: str) -> None:
    say(f"\n{number}. {text}")


def endpoints(obj: dict[str, Any]) -> str:
    addresses = [
        f"{endpoint['addresses'][0]} on {endpoint['nodeName']}" for endpoint in obj.get("endpoints") or []
    ]
    return ", ".join(addresses) or "no endpoints"


@asynccontextmanager
async def hubs(cluster: Cluster, folder: Path) -> AsyncIterator[dict[str, Hub]]:
    """Run a hub for each node, as `scripts/hub` does."""
    made = {
        node: Hub(
            folder / node, cluster.url, node=node, kubeconfig=cluster.kubeconfig(node), inside=OWN_SESSION
        )
        for node in NODES
    }
    starting = asyncio.gather(*(asyncio.to_thread(hub.start) for hub in made.values()))
    try:
        await asyncio.shield(starting)
        yield made
    finally:
        await asyncio.wait([starting])  # no cancellation ends a thread
        starting.exception()  # marks it as retrieved: Ctrl-C ends a hub that has no session of its own yet
        await asyncio.gather(*(asyncio.to_thread(hub.stop) for hub in made.values()))


async def show_views(running: dict[str, Hub]) -> None:
    step(1, "The same list, as kube-proxy on two nodes of two pools sees it")
    say("   The Service web says: openyurt.io/topologyKeys: openyurt.io/nodepool")
    for node, hub in running.items():
        (item,) = await get_list(hub.url + SLICES, "kube-proxy")
        say(f"   {node} (pool {NODES[node]}): {endpoints(item)}")
    (item,) = await get_list(next(iter(running.values())).url + SLICES, "curl")
    say(f"   a client that no rule names:  {endpoints(item)}")


async def show_rule(cluster: Cluster, hub: Hub) -> None:
    step(2, "A rule edited in the ConfigMap changes a watch that is open")
    async with watch(hub.url + SLICES, "flanneld") as events:
        kind, item = await anext(events)
        say(f"   flanneld watches on {hub.node}:   {kind:8} {endpoints(item)}")
        rules = {"filter_servicetopology": "flanneld/endpointslices#list;watch"}
        say(f"   ConfigMap yurt-hub-cfg now has: {rules}")
        await cluster.write(
            CONFIG, {"metadata": {"name": "yurt-hub-cfg", "namespace": "kube-system"}, "data": rules}
        )
        kind, item = await anext(events)
        say(f"   the same watch, a moment later: {kind:8} {endpoints(item)}")


async def show_write(cluster: Cluster, hub: Hub) -> None:
    step(3, "A write goes to the cloud as it is, and comes back to every watch")
    async with watch(hub.url + SLICES, "kube-proxy") as events:
        await anext(events)
        document = slice_of_web()
        document["endpoints"].append(
            {"addresses": ["10.2.0.9"], "nodeName": hub.node, "conditions": {"ready": True}}
        )
        say(f"   PUT endpointslices/{document['metadata']['name']} through the hub of {hub.node}")
        status = await send(
            "PUT", f"{hub.url}{SLICES}/{document['metadata']['name']}", document, cluster.authorization
        )
        say(f"   the cloud answered {status}")
        kind, item = await anext(events)
        say(f"   kube-proxy's watch on {hub.node}: {kind} {endpoints(item)}")


async def run(*, real: bool) -> None:
    say(
        "edgehub: a hub on each of two nodes, before "
        + ("a real control plane" if real else "an embedded cloud")
    )
    with tempfile.TemporaryDirectory(prefix="edgehub-demo-") as temporary:
        folder = Path(temporary)
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(
                real_cluster(folder) if real else embedded_cluster(folder)
            )
            running = await stack.enter_async_context(hubs(cluster, folder))
            first = next(iter(running.values()))
            await show_views(running)
            await show_rule(cluster, first)
            await show_write(cluster, first)
            if real:
                step(4, "Real node components behind the hub")
                await asyncio.to_thread(cluster.show_components, first, say)
            say(NEXT)


async def until_ended(work: Coroutine[Any, Any, int | None]) -> int:
    """Run `work`; return its exit status, or the shell's for an end by a signal, or by the output's reader."""
    shown = asyncio.create_task(work, name="demo")

    def end() -> None:
        if not shown.cancelling():  # a second signal does not end the cleaning
            shown.cancel()

    for ending in ENDINGS:
        asyncio.get_running_loop().add_signal_handler(ending, end)
    try:
        return await shown or 0
    except asyncio.CancelledError:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        return end_output()


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--real", action="store_true", help="Use a real control plane, which Go builds first."
    )
    chosen.add_argument(
        "--ui",
        choices=("web", "console"),
        help="Start a node with this interface of mitmproxy, until Ctrl-C.",
    )
    options = parser.parse_args()
    sys.exit(asyncio.run(until_ended(show(options.ui) if options.ui else run(real=options.real))))
