"""The hub as a service of its node: starts and replaces it, and waits until it is ready."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from addons.certificates.tls_port_certificate import FILE as CLUSTER_CERTIFICATE
from addons.install.changes import FileChange, Ledger
from addons.install.install_spec import SOCKET_FILE, InstallSpec
from addons.install.services.pod_processes import containers_of, end, has_pod, last_lines, logs_of
from addons.install.services.readiness import (
    NotReadyError,
    count_writes,
    pause,
    runs_on,
    start_of,
    wait_for_hub,
    wait_for_node,
)
from addons.install.services.system_services import HUB_UNIT, Services, uid_of

CERTIFICATE_WAIT = 20.0
"""Seconds that an installation waits for the TLS port's certificate, which the manager approves within seconds."""
UNSIGNED = (
    "the cluster has not signed the certificate of the TLS port, so pods go on calling the cloud directly until it "
    "has: is the manager running? It approves the request, or `kubectl certificate approve` does (`kubectl get csr`)"
)


LIMIT_OF_STATIC_POD = 90.0
"""Seconds in which a static pod ends after its manifest was removed: kubelet checks every 20, and waits up to 30 for
the pod.
"""


POD_REMOVAL_DELAY = 1.0
"""Seconds that kubelet may need to finish the removal of a pod after that of its folder."""


class HubService:
    """The hub's service below one root. NotReadyError and ServiceError give the reason if it does not run."""

    def __init__(self, ledger: Ledger, services: Services, say: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._services = services
        self._say = say

    def run(self, spec: InstallSpec, changed: Iterable[FileChange]) -> None:
        """Start the hub by systemd after these files have changed. kubelet starts a static pod by itself."""
        if spec.method == "systemd":
            self._services.start_hub(opens_anew=any(change.path == SOCKET_FILE for change in changed))

    def end_pod(self, spec: InstallSpec, manifest: bytes) -> None:
        """Remove a static pod's manifest before its replacement is written, unless kubelet treats both as the same pod.

        Return when kubelet has removed the pod, so that it starts the new one at once. While the old pod exists,
        kubelet retries only after 10 to 15 s. A kubelet that has just started may forget the pod and leave its
        containers: these are ended here, since they would hold the ports of the next pod.
        """
        present = self._ledger.present(spec.hub_file)
        if spec.method != "static-pod" or present == manifest:
            return
        if present is not None and uid_of(present) == uid_of(manifest) != "":
            return
        self._ledger.locate(spec.hub_file).unlink(missing_ok=True)
        root, deadline = self._ledger.locate(Path("/")), time.monotonic() + LIMIT_OF_STATIC_POD
        was_there = False
        try:
            while has_pod(spec.pod, root):
                was_there = True
                asyncio.run(pause("the previous pod still exists", deadline))
        except NotReadyError:
            end(containers_of(spec.pod, root))
        if was_there:
            time.sleep(POD_REMOVAL_DELAY)

    def replace(self, spec: InstallSpec, pending: Iterable[FileChange], deadline: float) -> None:
        """Write the hub's files, start the hub, and wait until it is ready.

        If the manifest of a static pod has changed, wait for a hub other than the present one: kubelet replaces it
        later.
        """
        changed, previous, ended = [*pending], None, runs_on
        manifests = [change.data for change in changed if change.path == spec.hub_file]
        if spec.method == "static-pod" and manifests and self._services.can_be_called:
            previous = asyncio.run(start_of(spec.hub))
            ended = self._next_container(spec, uid_of(*manifests))
            self.end_pod(spec, *manifests)
        self._ledger.apply(changed)
        self.start(spec, deadline, changed, previous, ended)

    def _next_container(self, spec: InstallSpec, uid: str) -> Callable[[], str]:
        """Return a function that returns the last log lines of the pod's next container once kubelet has restarted it;
        "" before.
        """
        root = self._ledger.locate(Path("/"))
        first = max(logs_of(spec.pod, uid, root), default=-1) + 1

        def ended() -> str:
            logs = logs_of(spec.pod, uid, root)
            has_ended = max(logs, default=-1) > first and first in logs
            return f"it has ended, and its last lines are:\n{last_lines(logs[first])}" if has_ended else ""

        return ended

    def start(
        self,
        spec: InstallSpec,
        deadline: float,
        changed: Iterable[FileChange],
        previous: str | None = None,
        pod_ended: Callable[[], str] = runs_on,
    ) -> None:
        if not self._services.can_be_called:
            return
        self.run(spec, changed)
        self._say(f"waiting for the hub at {spec.hub.admin_url}")
        with self.with_last_lines(self.unit_of(spec), pod_ended) as ended:
            asyncio.run(wait_for_hub(spec.hub, deadline, ended, previous=previous))
        self._wait_for_certificate(spec, deadline)

    @staticmethod
    def unit_of(spec: InstallSpec) -> str:
        """Return the unit whose log explains why the hub ended; "" for a static pod."""
        return HUB_UNIT if spec.method == "systemd" else ""

    def _wait_for_certificate(self, spec: InstallSpec, deadline: float) -> None:
        """Wait until the cluster has signed the TLS port's certificate; print a warning if that takes too long.

        The hub directs pods to itself only once they can verify it.
        """
        if not spec.needs_cluster_certificate:
            return
        file = self._ledger.locate(spec.hub.state_dir / CLUSTER_CERTIFICATE)
        end = min(deadline, time.monotonic() + CERTIFICATE_WAIT)
        try:
            while not file.exists():
                asyncio.run(pause(UNSIGNED, end))
        except NotReadyError as error:
            self._say(f"warning: {error}")

    def move_clients(self, spec: InstallSpec, deadline: float) -> None:
        if not self._services.can_be_called:
            return
        writes = asyncio.run(count_writes(spec.hub))
        self._services.restart_clients(spec.service)
        self._say(f"waiting until kubelet keeps {spec.node} Ready through the hub")
        with self.with_last_lines(spec.service) as ended:
            asyncio.run(wait_for_node(spec.hub, spec.node, writes, deadline, ended))

    @contextlib.contextmanager
    def with_last_lines(
        self, unit: str, pod_ended: Callable[[], str] = runs_on
    ) -> Iterator[Callable[[], str]]:
        """Yield a function that returns the last log lines of an ended service; "" while it runs.

        `pod_ended` is that function for a static pod. A NotReadyError raised in the context gets these lines, too.
        """
        try:
            yield partial(self._services.last_lines, unit) if unit else pod_ended
        except NotReadyError as error:
            log_lines = self._services.last_lines(unit, of_running=True) if unit else ""
            raise NotReadyError(
                f"{error}; {log_lines}" if log_lines and log_lines not in str(error) else str(error)
            ) from error

    def is_up(self, spec: InstallSpec) -> bool:
        try:
            asyncio.run(wait_for_hub(spec.hub, 0.0))
        except NotReadyError:
            return False
        return True
