"""The tables of `scripts/bench --links` about disk copies: the bytes with which a hub verifies and refreshes them.

A recorder in front of kube-apiserver shows the parts of a restart. It requests a client certificate, as kube-apiserver
does, so that a TLS handshake has the same parts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import urllib3

from scripts.benchmark.quiet_node import DOWN, UP, Recorder
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub

SIZES = (200, 1000)
"""Numbers of Services; there are as many slices."""
SERVICES, SLICES = "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"
BREAK = 3.0
"""Seconds of an outage."""
QUIET = 6.0
"""Seconds after each step until a hub with copies has sent all its requests."""
PROTOBUF = "application/vnd.kubernetes.protobuf"
WATCH_LIST = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
NODE = "node-1"


def fill(cloud: RealCloud, first: int, count: int) -> None:
    """Create the objects of these numbers."""
    for number in range(first, count):
        name = {"name": f"copied-{number}"}
        service: dict[str, Any] = {"metadata": name, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
        cloud.admin.post("/api/v1/namespaces/default/services", service)
        ready = [{"addresses": ["10.1.0.1"]}]
        slice_ = {"metadata": name, "addressType": "IPv4", "endpoints": ready, "ports": []}
        cloud.admin.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice_)


def listed(hub: Hub, query: str) -> None:
    """Read both kinds as kube-proxy does, until the initial state is complete."""
    headers = {"User-Agent": "kube-proxy/v1", "Accept": PROTOBUF}
    with urllib3.PoolManager(retries=False, headers=headers, timeout=30) as client:
        for path in (SERVICES, SLICES):
            answer = client.request("GET", f"{hub.url}{path}?{query}", preload_content=False)
            assert answer.status == 200, answer.data
            for piece in answer.stream(65536):
                if b"k8s.io/initial-events-end" in piece:
                    break
            answer.close()


def measure(cloud: RealCloud, folder: Path, size: int) -> None:
    """Print the bytes in both directions for each step, for a hub that starts without copies."""
    folder.mkdir()
    with Recorder(cloud, NODE, folder / "recorder") as recorder, Link("127.0.0.1", recorder.port) as link:
        url = f"https://{link.host}:{link.port}"
        hub = Hub(folder / "hub", url, node=NODE, kubeconfig=cloud.node_kubeconfig(NODE))
        try:
            counts = steps(cloud, hub, link, recorder, size)
        finally:
            hub.stop()
    causes(counts, f"of that start, with {size}")


def steps(cloud: RealCloud, hub: Hub, link: Link, recorder: Recorder, size: int) -> Counter[tuple[str, str]]:
    """Print a line for each step; return the bytes by cause of the last one."""
    print(f"\n{f'copies of {size} Services and slices':50}{'KB':>9}{'of it':>8}{'requests':>10}")
    table: dict[str, tuple[Callable[[], object], ...]] = {
        "started, and both listed": (hub.start, partial(listed, hub, "resourceVersion=0")),
        "a list of each without a version": (partial(listed, hub, ""),),
        "the same after a write of another kind": (partial(_touch, cloud), partial(listed, hub, "")),
        "a WatchList of each, after another one": (partial(_touch, cloud), partial(listed, hub, WATCH_LIST)),
        f"the link breaks for {BREAK:.0f} s": (link.refuse, partial(time.sleep, BREAK), link.carry),
        "the hub starts again, and both are listed": (
            *(hub.stop, hub.start),
            partial(listed, hub, "resourceVersion=0"),
        ),
    }
    total = 0
    for what, step in table.items():
        recorder.start()
        before = link.traffic
        for do in step:
            do()
        time.sleep(QUIET)
        bytes_ = link.traffic.up - before.up + link.traffic.down - before.down
        total = total or bytes_
        print(f"{what:50}{bytes_ / 1e3:9.1f}{100 * bytes_ / total:6.1f} %{recorder.requests:10}")
    recorder.add("TLS handshake", DOWN, bytes_ - sum(recorder.counts.values()))
    return Counter(recorder.counts)


def causes(counts: Counter[tuple[str, str]], what: str) -> None:
    """Print the causes of bytes, largest first."""
    print(f"\n{what:60}{'up':>8}{'down':>8}")
    sums = Counter[str]()
    for (cause, _), size in counts.items():
        sums[cause] += size
    for cause, _ in sums.most_common():
        print(f"{cause[:59]:60}{counts[cause, UP]:8}{counts[cause, DOWN]:8}")


def _touch(cloud: RealCloud) -> None:
    cloud.admin.post("/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "touched-"}})
