"""A kubelet of real code with a runtime that a test can break: `tests/cloud/gomod/kubelet`. kubemark's kubelet gives
each pod the same address for ever; here a restarted pod gets another address, and pods have logs and containers that
support exec. Its server authenticates callers, as on a real node."""

from __future__ import annotations

import re
import shutil
from datetime import datetime
from pathlib import Path

import urllib3

from tests.cloud.build import KUBELET, ensure_binaries
from tests.cloud.hollow import READY_TIMEOUT, remove_root
from tests.cloud.kube_proxy import time_of
from tests.cloud.pki import Authority
from tests.cloud.ports import free_port
from tests.cloud.processes import Component, Process

PROGRAM = "kubelet"


class Kubelet(Component):
    """A kubelet that registers its node. Its User-Agent is a real kubelet's."""

    def __init__(
        self, node: str, kubeconfig: Path, folder: Path, addresses: str, authority: Authority | None = None
    ) -> None:
        """`addresses` is the prefix of its pods' addresses, such as `10.1.1`.

        With an `authority` its server verifies callers.
        """
        self.node = node
        self.port = free_port()
        self._scratch = folder / f"kubelet-{node}"
        self._scratch.mkdir()
        flags = [
            *(f"--name={node}", f"--kubeconfig={kubeconfig}", f"--addresses={addresses}"),
            # From level 3, the log names each status that the API server accepted.
            *(f"--port={self.port}", "-v=3"),
        ]
        if authority is not None:
            certificate, key = authority.issue_server(node, [node]).write(self._scratch, "serving")
            client_ca = self._scratch / "client-ca.crt"
            client_ca.write_bytes(authority.certificate)
            flags += [f"--cert={certificate}", f"--key={key}", f"--client-ca={client_ca}"]
        program = ensure_binaries([PROGRAM], recipe=KUBELET)[PROGRAM]
        self.process = Process(f"kubelet-{node}", [program, *flags], folder)
        self._http = urllib3.PoolManager(retries=False, timeout=READY_TIMEOUT)

    def restart(self, namespace: str, pod: str) -> str:
        """End the sandbox of a pod; return its address. kubelet creates another one within seconds."""
        said = self.process.wait_for_line("^runtime at ", READY_TIMEOUT)
        answer = self._http.request("POST", f"{said.split()[-1]}/restart/{namespace}/{pod}")
        assert answer.status == 200, answer.data
        return answer.data.decode().strip()

    def said(self, namespace: str, pod: str, address: str) -> datetime:
        """Return when the hub, or the cloud, accepted the first status with this pod ready at this address."""
        ready, at = r'"type":"ContainersReady",[^}]*"status":"True"', f'"podIP":"{re.escape(address)}"'
        wanted = rf'"Status for pod updated successfully" pod="{namespace}/{pod}" .*{ready}.*{at}'
        return logged_at(self.process.wait_for_line(wanted, READY_TIMEOUT))

    def stop(self) -> None:
        """End it, and remove its files."""
        self.process.stop()
        remove_root(self.process)
        shutil.rmtree(self._scratch, ignore_errors=True)


def logged_at(line: str) -> datetime:
    """Return the time of a klog line such as `I1123 19:55:04.123456 12345 server.go:1] …`, in this year."""
    return time_of(*line.split()[:2])
