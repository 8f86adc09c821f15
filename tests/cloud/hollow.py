"""Hollow node components: kubemark's real kubelet and real kube-proxy, over a fake container runtime. They use the API
like the real ones, except for their User-Agents, `hollow-kubelet` and `hollow-proxy`, so rules for them must name these
components. `tests.cloud.kube_proxy` runs the real kube-proxy."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from kube.json_type import Json
from tests.cloud.processes import Component, Process
from tests.cloud.rest import RestClient, is_true
from tests.cloud.versions import node_minor

PROGRAM = "kubemark"
PROTOBUF = "application/vnd.kubernetes.protobuf"
READY_TIMEOUT = 30.0
"""Seconds until the node is Ready, half a second on idle cores."""
PROXY_CACHES = ("service config", "endpoint slice config", "serviceCIDR config")
"""The resources that kube-proxy must have read before it writes any rule, by the names of its log."""
SERVICE_CIDRS = 33
"""The minor version from which kube-proxy reads ServiceCIDRs, the last of these resources."""


class HollowKubelet(Component):
    """A kubelet that keeps its node Ready, runs pods that do nothing, and follows their volumes. It listens on a port
    chosen by the kernel, on all addresses: kubemark has no flag for either."""

    def __init__(
        self,
        node: str,
        kubeconfig: Path,
        folder: Path,
        programs: Mapping[str, Path],
        *,
        labels: Mapping[str, str] | None = None,
        content_type: str = PROTOBUF,
    ) -> None:
        self.node = node
        flags = [
            "--morph=kubelet",
            f"--name={node}",
            f"--kubeconfig={kubeconfig}",
            f"--kube-api-content-type={content_type}",
            f"--node-labels={','.join(f'{key}={value}' for key, value in (labels or {}).items())}",
            # There is no container runtime with images on the host.
            "--use-host-image-service=false",
            "--kubelet-port=0",
            "--kubelet-read-only-port=0",
            # From level 3, the log names the socket, which must be removed.
            "-v=3",
        ]
        self.process = Process(f"hollow-kubelet-{node}", [programs[PROGRAM], *flags], folder)

    def wait_ready(self, client: RestClient, timeout: float = READY_TIMEOUT) -> Json:
        """Return the Node as soon as the API reports it Ready; raises TimeoutError."""
        try:
            return client.wait_for("/api/v1/nodes", self.node, is_ready, timeout=timeout)
        except TimeoutError as error:
            error.add_note(str(self.process.failure("did not make its node Ready")))
            raise

    def stop(self) -> None:
        """End it, and remove its files below /tmp, the only folder that kubemark writes to."""
        self.process.stop()
        remove_root(self.process)
        for line in self.process.lines:
            if found := re.search(r'"Connecting to runtime service" endpoint="unix://(/tmp/[^"]+)"', line):
                Path(found[1]).unlink(missing_ok=True)


def remove_root(process: Process) -> None:
    """Remove the folder of kubemark's kubelet, which ignores the environment's setting for temporary files."""
    for line in process.lines:
        if found := re.search(r"Using (/tmp/hollow-kubelet\.\w+) as root dir", line):
            shutil.rmtree(found[1], ignore_errors=True)


class HollowProxy(Component):
    """A kube-proxy that reads all that it needs and writes no rule."""

    def __init__(
        self,
        node: str,
        kubeconfig: Path,
        folder: Path,
        programs: Mapping[str, Path],
        *,
        content_type: str = PROTOBUF,
    ) -> None:
        flags = [
            "--morph=proxy",
            f"--name={node}",
            f"--kubeconfig={kubeconfig}",
            f"--kube-api-content-type={content_type}",
            # From level 4, the log names each object from the informers.
            "-v=4",
        ]
        self.process = Process(f"hollow-proxy-{node}", [programs[PROGRAM], *flags], folder)

    def wait_synced(self, timeout: float = READY_TIMEOUT) -> None:
        """Return when its informers have read everything; raises ProcessFailedError."""
        wait_caches_synced(self.process, timeout)


def wait_caches_synced(process: Process, timeout: float) -> None:
    """Return when a kube-proxy has read all that it needs; raises ProcessFailedError."""
    caches = PROXY_CACHES if node_minor() >= SERVICE_CIDRS else PROXY_CACHES[:2]
    for cache in caches:
        process.wait_for_line(f'Caches are synced(" controller="{cache}"| for {cache}$)', timeout)


def is_ready(node: Json) -> bool:
    return is_true(node, "Ready")
