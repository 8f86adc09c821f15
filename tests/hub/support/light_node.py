"""A node as one process: its kubelet renews the Lease, reports Ready, and runs the Jobs of the controller `nodes`."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path

from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.cloud.rest import STRATEGIC_PATCH, RestClient, RestError, is_true
from tests.controllers.nodes.support.simulated_node import SimulatedNode
from tests.hub.support.process import ROOT

NODES = "/api/v1/nodes"
HEARTBEAT = 5.0
"""Seconds between two renewals of the Lease; ten for a real kubelet."""
LEASE = 40
"""The Lease's duration in seconds, as for a kubelet."""
MODULE = "tests.hub.support.light_node"
RETRY = 1.0
"""Seconds until a broken watch is reopened."""


def light_node(cloud: RealCloud, node: str, server: str, folder: Path, bad: str) -> Process:
    """Start a light node. Its doctor finds an error as long as `folder` has a file of the node's name."""
    certificate, key = cloud.authority.issue_node(node).write(folder, f"light-{node}")
    files = (str(each) for each in (cloud.authority_file, certificate, key, folder / node))
    command = [sys.executable, "-m", MODULE, node, server, *files, bad]
    return Process(f"light-{node}", command, folder, {"PYTHONPATH": str(ROOT)})


class LightNode:
    """A node that runs in two threads."""

    def __init__(self, client: RestClient, node: str, fault: Path, bad: str) -> None:
        self._client, self._node, self._fault, self._bad = client, node, fault, bad
        self._simulated = SimulatedNode(client, node, LEASE)

    def beat(self) -> None:
        """Renew the Lease, and keep the node Ready, until the process ends."""
        while True:
            try:
                self._simulated.renew()
                if not is_true(self._client.get(f"{NODES}/{self._node}"), "Ready"):
                    ready = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}
                    self._client.patch(f"{NODES}/{self._node}/status", {"status": ready}, STRATEGIC_PATCH)
            except (OSError, RestError) as error:
                print(error, flush=True)
            time.sleep(HEARTBEAT)

    def follow(self) -> None:
        """Run the Jobs of this node."""
        query = {"fieldSelector": f"spec.nodeName={self._node},status.phase=Pending", "timeoutSeconds": "10"}
        for event in self._client.watch("/api/v1/pods", timeout=3 * HEARTBEAT, **query):
            if event.type != "ADDED":
                continue
            action = self._simulated.run(event.object, fails=self._fault.exists(), bad=[self._bad])
            print(f"{self._node} {action}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("node", "server", "authority", "certificate", "key", "fault", "bad"):
        parser.add_argument(name)
    given = parser.parse_args()
    client = RestClient(
        given.server,
        authority=Path(given.authority).read_bytes(),
        certificate_files=(given.certificate, given.key),
    )
    node = LightNode(client, given.node, Path(given.fault), given.bad)
    threading.Thread(target=node.beat, daemon=True).start()
    while True:
        try:
            node.follow()
        except (OSError, RestError) as error:
            print(error, flush=True)
            time.sleep(RETRY)


if __name__ == "__main__":
    main()
