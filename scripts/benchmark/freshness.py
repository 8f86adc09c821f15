"""The table of `scripts/bench --links` about copies: the bytes that tell whether they are the cloud's, and how new."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import urllib3

from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub

OBJECTS = 1000
"""Services, and as many slices."""
SERVICES, SLICES = "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"
BREAK = 3.0
"""Seconds of an outage."""
QUIET = 6.0
"""Seconds in which a hub with copies says what it has to say after each step."""
PROTOBUF = "application/vnd.kubernetes.protobuf"
WATCH_LIST = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


def fill(cloud: RealCloud) -> None:
    """Create the objects."""
    for number in range(OBJECTS):
        name = {"name": f"copied-{number}"}
        service: dict[str, Any] = {"metadata": name, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
        cloud.admin.post("/api/v1/namespaces/default/services", service)
        ready = [{"addresses": ["10.1.0.1"]}]
        slice_ = {"metadata": name, "addressType": "IPv4", "endpoints": ready, "ports": []}
        cloud.admin.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice_)


def listed(hub: Hub, query: str) -> None:
    """Read both kinds as kube-proxy does, to the end of the state."""
    headers = {"User-Agent": "kube-proxy/v1", "Accept": PROTOBUF}
    with urllib3.PoolManager(retries=False, headers=headers, timeout=30) as client:
        for path in (SERVICES, SLICES):
            answer = client.request("GET", f"{hub.url}{path}?{query}", preload_content=False)
            assert answer.status == 200, answer.data
            for piece in answer.stream(65536):
                if b"k8s.io/initial-events-end" in piece:
                    break
            answer.close()


def measure(cloud: RealCloud, hub: Hub, link: Link) -> None:
    """Print the bytes of both directions for each step, of a hub that has not begun yet."""
    fill(cloud)
    print(f"\n{f'copies of {OBJECTS} Services and slices':50}{'KB':>9}{'of it':>8}")
    steps: dict[str, tuple[Callable[[], object], ...]] = {
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
    whole = 0
    for what, step in steps.items():
        before = link.traffic
        for do in step:
            do()
        time.sleep(QUIET)
        size = link.traffic.up - before.up + link.traffic.down - before.down
        whole = whole or size
        print(f"{what:50}{size / 1e3:9.1f}{100 * size / whole:6.1f} %")


def _touch(cloud: RealCloud) -> None:
    cloud.admin.post("/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "touched-"}})
