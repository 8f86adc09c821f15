"""A table of `scripts/bench --links`: where the bytes of a quiet node go, with a real kubelet and kube-proxy."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from pathlib import Path

from scripts.benchmark.link_bytes import DOWN, UP, Recorder
from tests.cloud.build import ensure_binaries
from tests.cloud.hollow import HollowKubelet, HollowProxy
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.hub.support.process import Hub

NODE = "quiet-1"
OTHERS = 999
"""Nodes of which a program writes the statuses, one in five minutes each."""
STATUS_EVERY = 300.0
FIRST = 45.0
"""Seconds from the hub's start in which kubelet, kube-proxy and the hub read what they need."""
SETTLING = 120.0
"""Seconds until a small watch has had the bookmark with which it begins, and goes on without."""
WINDOW = 600.0
"""Seconds that are counted: the node's own status is among them twice, and each bookmark that comes ten times."""
DAY = 86400
LEAST = 0.02
"""Megabytes a day; what is less is one line."""
RULES = {"metadata": {"name": "yurt-hub-cfg"}, "data": {"cache_agents": "hollow-kubelet,hollow-proxy"}}


def measure(cloud: RealCloud, folder: Path) -> None:
    """Print it. The cloud has no NodeLabels: no Service asks for a topology."""
    folder.mkdir()
    cloud.admin.post("/api/v1/namespaces/kube-system/configmaps", RULES)
    for number in range(OTHERS):
        cloud.admin.post("/api/v1/nodes", {"metadata": {"name": f"other-{number}"}})
    ends = threading.Event()
    others = threading.Thread(target=write_statuses, args=(cloud, ends), daemon=True)
    with Recorder(cloud, NODE, folder) as recorder, Link("127.0.0.1", recorder.port) as link:
        server = f"https://{link.host}:{link.port}"
        began = time.monotonic()
        with Hub(folder / "hub", server, node=NODE, kubeconfig=cloud.node_kubeconfig(NODE)) as hub:
            kubeconfig = write_kubeconfig(folder / "kubelet.conf", hub.url)
            programs = ensure_binaries(("kubemark",))
            with (
                HollowKubelet(NODE, kubeconfig, folder, programs) as kubelet,
                HollowProxy(NODE, kubeconfig, folder, programs),
            ):
                kubelet.wait_ready(cloud.admin)
                others.start()
                time.sleep(max(0.0, began + FIRST - time.monotonic()))
                first = link.traffic
                print(f"\n{'a whole node, first 45 s':60}{(first.up + first.down) / 1e3:9.0f} KB")
                time.sleep(SETTLING)
                recorder.start()
                before = link.traffic
                time.sleep(WINDOW)
                after, counts = link.traffic, Counter(recorder.counts)
                ends.set()
                others.join()
    report(counts, after.up - before.up, after.down - before.down)


def write_statuses(cloud: RealCloud, ends: threading.Event) -> None:
    for number in itertools.count():
        if ends.wait(STATUS_EVERY / OTHERS):
            return
        ready = {"type": "Ready", "status": "True", "reason": f"Written{number}"}
        cloud.admin.patch(
            f"/api/v1/nodes/other-{number % OTHERS}/status", {"status": {"conditions": [ready]}}
        )


def report(counts: Counter[tuple[str, str]], up: int, down: int) -> None:
    """The causes, largest first, and the sum as the link counts it."""
    print(f"\n{'quiet node, with kubelet and kube-proxy':60}{'up':>9}{'down':>9}{'MB a day':>10}")
    causes = Counter[str]()
    for (cause, _), size in counts.items():
        causes[cause] += size
    rest = [0, 0]
    for cause, size in causes.most_common():
        sent, received = counts[cause, UP], counts[cause, DOWN]
        if megabytes(size) < LEAST:
            rest = [rest[0] + sent, rest[1] + received]
        else:
            line(cause.replace(NODE, "…"), sent, received)
    line("the rest", *rest)
    line("all", up, down)


def line(name: str, sent: int, received: int) -> None:
    up, down = megabytes(sent), megabytes(received)
    print(f"{name[:59]:60}{up:9.2f}{down:9.2f}{up + down:10.2f}")


def megabytes(size: int) -> float:
    """Of a day."""
    return size / WINDOW * DAY / 1e6
