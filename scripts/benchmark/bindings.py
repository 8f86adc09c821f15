"""The load of `scripts/bench --bindings`: the manager injects bindings into a thousand workloads of node pools."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass

import aiohttp
import orjson

from kube.json_type import Json
from scripts.benchmark.load import THREADS, new_cloud, p99, post_all, print_rows, resident_megabytes, waiting
from scripts.benchmark.manager import MANIFESTS, PATIENCE, kubeconfig, steady
from tests.cloud.ports import LOOPBACK, free_port
from tests.cloud.real import RealCloud
from tests.controllers.support.process import ManagerProcess
from tests.controllers.support.workloads import DEPLOYMENT, env, image, patch

NAMESPACE = "default"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
BINDINGS = f"/apis/apps.openyurt.io/v1alpha1/namespaces/{NAMESPACE}/yurtappconfigbindings"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/edgehub-configbinding"
ITEMS = [image("registry.example/{{nodepool}}/app:2"), env(SITE="{{nodepool}}")]
PATCHES = [patch("add", "/volumes/-", {"name": "site", "hostPath": {"path": "/etc/{{nodepool}}"}})]


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the load. Each set has a workload in each pool. `reviews` are sent in sequence, and by THREADS
    clients."""

    pools: int = 20
    sets: int = 50
    rollouts: int = 8
    reviews: int = 2000


def measure(size: Size) -> None:
    """Measure each part in sequence, on a control plane of its own, and print the figures."""
    port = free_port()
    with new_cloud() as (cloud, folder):
        fill(cloud, size, port)
        flags = ("--webhook-port", str(port))
        with ManagerProcess(folder, kubeconfig(cloud), *flags, name="manager") as manager:
            steady(manager)
            resident = resident_megabytes(manager.process.pid)
            rollouts = [follow(cloud, size, number) for number in range(size.rollouts)]
            steady(manager)
            began = time.perf_counter()
            for number in range(size.rollouts, size.sets):
                bind(cloud, number)
            bound = steady(manager) - began
            admitted = (
                ("an admission", admissions(cloud, port, size, 1)),
                (f"an admission, {THREADS} at a time", admissions(cloud, port, size, THREADS)),
                ("a write with its admission", writes(cloud, size)),
            )
            peak = resident_megabytes(manager.process.pid, "VmHWM")
    print(f"{size.sets * size.pools} Deployments in {size.pools} pools, {size.sets} bindings")
    print_rows(
        (
            ("resident with the workloads, MB", resident),
            (f"binding to {size.pools} workloads, p50 s", statistics.median(rollouts)),
            (f"binding to {size.pools} workloads, at most s", max(rollouts)),
            ("all other bindings at once, s", bound),
            *(
                (f"{name}, {of} ms", share(seconds) * 1e3)
                for name, seconds in admitted
                for of, share in (("p50", statistics.median), ("p99", p99))
            ),
            ("resident at most, MB", peak),
        )
    )


def fill(cloud: RealCloud, size: Size, port: int) -> None:
    """Create the workloads of all sets. The API server calls the webhook by URL, because no kube-proxy runs here."""
    cloud.apply(MANIFESTS)
    webhooks = cloud.admin.get(CONFIGURATION)["webhooks"]
    webhooks[0]["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}/mutate-workload"}
    cloud.admin.patch(CONFIGURATION, {"webhooks": webhooks})
    pools = range(size.pools)
    post_all(cloud, DEPLOYMENTS, (deployment(n, f"pool-{pool}") for n in range(size.sets) for pool in pools))


def deployment(number: int, pool: str) -> Json:
    """Return a workload of a YurtAppSet, as OpenYurt makes it."""
    owner = {
        "apiVersion": "apps.openyurt.io/v1beta1",
        "kind": "YurtAppSet",
        "name": f"app-{number}",
        "uid": f"0b6f7f0e-0000-4000-8000-{number:012}",
        "controller": True,
    }
    labels = {"apps.openyurt.io/pool-name": pool, "set": f"app-{number}"}
    metadata = {"name": f"app-{number}-{pool}", "labels": labels, "ownerReferences": [owner]}
    return {**DEPLOYMENT, "metadata": metadata}


def bind(cloud: RealCloud, number: int) -> None:
    subject = {
        "apiVersion": "apps.openyurt.io/v1beta1",
        "kind": "YurtAppSet",
        "name": f"app-{number}",
        "pools": ["*"],
    }
    spec = {"subject": subject, "items": ITEMS, "patches": [patch["patch"] for patch in PATCHES]}
    kind = {"apiVersion": "apps.openyurt.io/v1alpha1", "kind": "YurtAppConfigBinding"}
    cloud.admin.post(BINDINGS, {**kind, "metadata": {"name": f"app-{number}"}, "spec": spec})


def follow(cloud: RealCloud, size: Size, number: int) -> float:
    """Measure the seconds from a new binding until the workloads of all pools have it."""
    time.sleep(1.0)  # earlier writes no longer count against the rate at which the manager may write
    began = time.perf_counter()
    bind(cloud, number)

    def follow_it() -> bool:
        workloads = cloud.admin.get(DEPLOYMENTS, labelSelector=f"set=app-{number}")["items"]
        volumes = [str(workload["spec"]["template"]["spec"]["volumes"]) for workload in workloads]
        return sum("site" in mounted for mounted in volumes) == size.pools

    waiting(follow_it, PATIENCE)
    return time.perf_counter() - began


def admissions(cloud: RealCloud, port: int, size: Size, clients: int) -> list[float]:
    """Measure the seconds of each review. A review changes a workload with bindings, on an open connection."""
    stored = cloud.admin.get(f"{DEPLOYMENTS}/app-0-pool-0")
    changed = {**stored, "spec": {**stored["spec"], "replicas": 7}}
    request = {
        "uid": "u",
        "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "namespace": NAMESPACE,
        "object": changed,
        "oldObject": stored,
    }
    body = orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    return asyncio.run(_ask(f"https://{LOOPBACK}:{port}/mutate-workload", body, size.reviews, clients))


async def _ask(url: str, body: bytes, reviews: int, clients: int) -> list[float]:
    """Send reviews from concurrent clients and return the seconds of each. All run in one thread: several threads would
    wait for each other, not for the manager."""
    seconds: list[float] = []
    left = iter(range(reviews + clients * 5))  # the first reviews of each client open its connection

    async def client() -> None:
        for _ in left:
            began = time.perf_counter()
            async with http.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
                said = orjson.loads(await answer.read())
            seconds.append(time.perf_counter() - began)
            if not said["response"]["allowed"]:
                raise ValueError("the webhook refuses a workload")

    # The bench does not check the certificate, whose CA is in the Secret.
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as http:
        await asyncio.gather(*(client() for _ in range(clients)))
    return seconds[clients * 5 :]


def writes(cloud: RealCloud, size: Size) -> list[float]:
    """Measure the seconds of each write of a workload, admission included."""
    seconds = []
    for number in range(size.reviews // 10):
        began = time.perf_counter()
        cloud.admin.patch(f"{DEPLOYMENTS}/app-1-pool-1", {"spec": {"replicas": number % 7}})
        seconds.append(time.perf_counter() - began)
    return seconds
