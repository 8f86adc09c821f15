"""A node with the maximum number of kubelet's pods: memory and CPU of hub and kubelet, printed by `scripts/test --node
-s`."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Self

import pytest

from scripts.node_machine import cloud
from scripts.node_machine.machine import Machine
from tests.node.support import callers, hub

pytestmark = [pytest.mark.node, pytest.mark.timeout(900), pytest.mark.usefixtures("behind_hub", "prepared")]
NAME = "many"


def test_a_node_runs_as_many_pods_as_without_a_hub(node: Machine, clouds: Machine) -> None:
    @dataclass(frozen=True, slots=True)
    class Use:
        """Memory in MB, and the CPU seconds used by a program so far."""

        memory: float
        processor: float

        @classmethod
        def of(cls, node: Machine, pid: str) -> Self:
            """Read the values of a single process from the kernel."""
            process = f"/proc/{pid}"
            status = dict(line.split(":", 1) for line in node.run("cat", f"{process}/status").splitlines())
            fields = node.run("cat", f"{process}/stat").rpartition(")")[2].split()
            ticks = sum(map(int, fields[11:13]))
            return cls(int(status["VmRSS"].split()[0]) / 1024, ticks / os.sysconf("SC_CLK_TCK"))

    pids = {"hub": hub.pid(node), "kubelet": node.run("pgrep", "-x", "kubelet").strip()}
    selector = f"--field-selector=spec.nodeName={node.name}"
    running = len(cloud.kubectl(clouds, "get", "pods", "-A", selector, "--output=name").split())
    before, began = {name: Use.of(node, pid) for name, pid in pids.items()}, time.monotonic()
    # kubelet's own limit.
    most = 110
    cloud.kubectl(clouds, "apply", "-f", "-", stdin=json.dumps(deployment(node, most - running)))
    timeout = "--timeout=600s"
    try:
        cloud.kubectl(clouds, "rollout", "status", f"deployment/{NAME}", timeout)
        print(
            f"\n{most} pods on the node, the last {most - running} started in {time.monotonic() - began:.0f} s"
        )
        for name, pid in pids.items():
            used = Use.of(node, pid)
            spent = used.processor - before[name].processor
            print(
                f"{name}: {used.memory:.0f} MB (before: {before[name].memory:.0f}), {spent:.1f} s of a processor"
            )
    finally:
        cloud.kubectl(clouds, "delete", "deployment", NAME)
        cloud.kubectl(clouds, "wait", "--for=delete", "pod", f"--selector=app={NAME}", timeout)


def deployment(node: Machine, replicas: int) -> dict[str, object]:
    """Return a Deployment of empty pause pods."""
    labels = {"app": NAME}
    container = {"name": NAME, "image": callers.image(node, "pause"), "imagePullPolicy": "IfNotPresent"}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node.name},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
