"""The hub as a service of its node: an installation starts it, replaces it, and waits until it is ready."""

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
from addons.install.services.pod_processes import has_pod
from addons.install.services.readiness import (
    NotReadyError,
    count_writes,
    pause,
    runs_on,
    start_of,
    wait_for_hub,
    wait_for_node,
)
from addons.install.services.system_services import HUB_UNIT, Services

CERTIFICATE_WAIT = 20.0
"""Seconds that an installation waits for the certificate of the TLS port, which the manager approves within some."""
UNSIGNED = (
    "the cluster has not signed the certificate of the TLS port, so pods go on calling the cloud directly until it "
    "has: is the manager running? It approves the request, or `kubectl certificate approve` does (`kubectl get csr`)"
)


LIMIT_OF_STATIC_POD = 90.0
"""Seconds until a hub is gone whose manifest is: kubelet looks each 20, and gives the pod 30 to end."""


class HubService:
    """The hub below one root. NotReadyError and ServiceError have the reason why it does not run."""

    def __init__(self, ledger: Ledger, services: Services, say: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._services = services
        self._say = say

    def run(self, spec: InstallSpec, changed: Iterable[FileChange]) -> None:
        """Start the hub by systemd, after these files have changed; kubelet starts a static pod by itself."""
        if spec.method == "systemd":
            opens_anew = any(change.path == SOCKET_FILE for change in changed)
            self._services.start_hub(has_sockets=bool(spec.hub.early_listeners), opens_anew=opens_anew)

    def end_pod(self, spec: InstallSpec) -> None:
        """Remove the manifest of a static pod, and return when kubelet has no pod of it any more.

        kubelet starts another one then at once. With the former one still there, it would try again only 10 to 15 s
        later.
        """
        manifest, root = self._ledger.locate(spec.hub_file), self._ledger.locate(Path("/"))
        manifest.unlink(missing_ok=True)
        end = time.monotonic() + LIMIT_OF_STATIC_POD
        with contextlib.suppress(NotReadyError):
            while has_pod(spec.pod, root):
                asyncio.run(pause("the former pod is still there", end))

    def replace(self, spec: InstallSpec, pending: Iterable[FileChange], deadline: float) -> None:
        """Write the hub's files, start the hub, and wait until it is ready.

        With a changed manifest of a static pod, wait for another hub than the present one: kubelet replaces the pod
        later.
        """
        changed, former = [*pending], None
        is_replaced = spec.method == "static-pod" and any(change.path == spec.hub_file for change in changed)
        if is_replaced and self._services.can_be_called:
            former = asyncio.run(start_of(spec.hub))
        self._ledger.apply(changed)
        self.start(spec, deadline, changed, former)

    def start(
        self, spec: InstallSpec, deadline: float, changed: Iterable[FileChange], former: str | None = None
    ) -> None:
        if not self._services.can_be_called:
            return
        self.run(spec, changed)
        self._say(f"waiting for the hub at {spec.hub.admin_url}")
        with self.with_last_lines(self.unit_of(spec)) as ended:
            asyncio.run(wait_for_hub(spec.hub, deadline, ended, former=former))
        self._wait_for_certificate(spec, deadline)

    @staticmethod
    def unit_of(spec: InstallSpec) -> str:
        """The unit whose last log lines explain why the hub ended; "" for a static pod."""
        return HUB_UNIT if spec.method == "systemd" else ""

    def _wait_for_certificate(self, spec: InstallSpec, deadline: float) -> None:
        """Wait until the cluster has signed the TLS port's certificate; print a warning if it has not in time.

        The hub points pods at itself only once they can verify it.
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
    def with_last_lines(self, unit: str) -> Iterator[Callable[[], str]]:
        """Give a function that returns the last lines of a service that has ended, "" while it runs.

        A wait that is over otherwise ends with these lines, too.
        """
        try:
            yield partial(self._services.last_lines, unit) if unit else runs_on
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
