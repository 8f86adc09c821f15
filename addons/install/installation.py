"""Puts a node behind its hub, and reverts that. If a step fails, the previous steps are undone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from addons.certificates.node_certificate import saved_credentials
from addons.install.changes import FileChange, Ledger, below, diff, read, remove_draft, write
from addons.install.cloud import cloud, delete_pod, remove_status
from addons.install.hub_service import LIMIT_OF_STATIC_POD, HubService
from addons.install.install_spec import (
    BOOTSTRAP_KUBECONFIG,
    KUBELET_BOOTSTRAP,
    LEDGER,
    OWN_KUBECONFIG,
    SOCKET_FILE,
    InstallSpec,
    leads_to,
    read_spec,
)
from addons.install.services.pod_processes import containers_at, end
from addons.install.services.readiness import (
    KUBELET_WAIT,
    NotReadyError,
    reaches_cloud,
    start_of,
    wait_for_cloud,
    wait_for_healthy_kubelet,
    wait_for_hub,
    wait_for_kubelet,
    wait_until_gone,
    watch_hub,
)
from addons.install.services.system_services import HUB_UNIT, PROXY_UNIT, ServiceError, Services
from addons.install.trials import Trial, guard_file, guard_path, read_trial
from addons.startup import pod_interface
from addons.startup.rollback import clear_rollback, write_rollback
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.http.kubeconfig import Credentials, load_kubeconfig

FAILURES = (NotReadyError, ServiceError, OSError, StatusError, Unreachable, KeyboardInterrupt)
"""Errors after which an installation is undone."""


class JoinError(Exception):
    """Raised if the node could not be changed; the message has the reason, and whether everything was undone."""


class Installation:
    """The installation below one root."""

    def __init__(self, root: Path, services: Services, say: Callable[[str], None]) -> None:
        self._root = root
        self._services = services
        self._say = say
        self._ledger = Ledger(root, LEDGER)
        self._hub = HubService(self._ledger, services, say)

    @property
    def installed(self) -> InstallSpec | None:
        """Specification of the installation below this root; None without one."""
        return None if self._ledger.is_empty else read_spec(self._ledger.settings)

    @property
    def acts(self) -> bool:
        """Whether the installation starts and stops services, or only writes files."""
        return self._services.can_be_called

    @property
    def unit_root(self) -> Path:
        """Root in which the unit's program is installed: this machine's if the installation starts services."""
        return Path("/") if self.acts else self._root

    def plan(self, spec: InstallSpec) -> list[FileChange]:
        """Return the changes that the installation still has to make. ValueError if it is impossible."""
        previous = self.installed
        if previous is not None and previous.method != spec.method:
            raise ValueError(f"the hub is installed by {previous.method}: `edgehub uninstall` first")
        # If another program has rewritten a kubeconfig, and it leads to the cloud, `uninstall` restores that version.
        for change in spec.client_changes(self._ledger):
            self._ledger.accept(change.path, partial(leads_to, spec.hub))
        return self._ledger.pending([*spec.hub_changes(self._ledger), *spec.client_changes(self._ledger)])

    def show(self, spec: InstallSpec) -> None:
        """Print each file that would change as a diff, and the services that would restart."""
        pending = self.plan(spec)
        for change in pending:
            self._say(diff(self._root, change).rstrip("\n"))
        if not pending:
            self._say("every file is up to date")
        if not self.acts:
            return
        if spec.method == "systemd" and any(change.path in spec.hub_files for change in pending):
            self._say(f"{HUB_UNIT} would be restarted")
        if any(change.path in spec.clients for change in pending):
            self._say(f"{spec.service} would be restarted, and {PROXY_UNIT} where it runs")

    def install(self, spec: InstallSpec, timeout: float, healthy: float) -> None:
        """Put the node behind the hub, and wait until the node is Ready.

        If it does not become Ready, undo all steps and raise JoinError. After a killed run, repeat every step, because
        it is unknown which ones were completed. An installed hub is replaced as by `upgrade`.
        """
        self.settle(timeout)
        pending, previous = self.plan(spec), self.installed
        was_cut_short = not self._ledger.is_settled
        if previous is not None and not was_cut_short:
            if pending or not self._hub.is_up(spec):
                self._replace(previous, spec, pending, "`edgehub install`", timeout, healthy)
            self._ledger.settle(spec.to_json())
            return
        deadline = time.monotonic() + timeout
        own, clients = spec.split(pending)
        self._ledger.begin(spec.to_json())
        try:
            clear_rollback(self._ledger.locate(spec.hub.state_dir))
            if was_cut_short:
                self._ledger.apply(own)
                self._hub.start(spec, deadline, spec.hub_changes(self._ledger))
            else:
                self._hub.replace(spec, own, deadline)
            self._ledger.apply(clients)
            self._hub.move_clients(spec, deadline)
            self._ledger.settle(spec.to_json())
        except FAILURES as error:
            self._say("the hub is not healthy: undoing everything")
            moved = any(self._ledger.has_changed(path) for path in spec.clients)
            outcome = self._remove(spec, restarts_clients=moved) or "everything is as it was"
            raise JoinError(f"{_error_text(error)}; {outcome}") from error

    def upgrade(self, program: str, image: str, timeout: float, healthy: float) -> None:
        """Restart the hub with this program, or image if it is a static pod; copies, and clients' versions, stay valid.

        Raises as `_replace`.
        """
        self.settle(timeout)
        previous = self.installed
        if previous is None:
            raise JoinError("no hub is installed here")
        if not self._ledger.is_settled:
            raise JoinError(
                "`edgehub install` was killed before its end: run it again, or `edgehub uninstall`"
            )
        is_pod = previous.method == "static-pod"
        if is_pod and not image:
            raise JoinError("the hub is a static pod: name its new image by --static-pod")
        spec = replace(previous, image=image) if is_pod else replace(previous, program=program)
        pending = self._ledger.pending(spec.hub_changes(self._ledger))
        self._replace(previous, spec, pending, image if is_pod else program, timeout, healthy)

    def _replace(
        self,
        previous: InstallSpec,
        spec: InstallSpec,
        pending: list[FileChange],
        target: str,
        timeout: float,
        healthy: float,
    ) -> None:
        """Replace the running hub, and move its clients if their kubeconfigs change.

        If the new one is not ready within `timeout` seconds, or not for `healthy` seconds after that, or has lost the
        cloud, restore the previous hub and raise JoinError. No step needs the cloud. If this process is killed, the
        guard restores the hub.
        """
        own, clients = spec.split(pending)
        trial = Trial(previous, self._snapshot(pending), target)
        self._ledger.settings = spec.to_json()
        try:
            has_cloud = self.acts and asyncio.run(reaches_cloud(previous.hub))
            if self.acts:
                self._begin_trial(trial)
            clear_rollback(self._ledger.locate(spec.hub.state_dir))
            self._hub.replace(spec, own, time.monotonic() + timeout)
            self._ledger.apply(clients)
            if clients:
                self._hub.move_clients(spec, time.monotonic() + timeout)
            if self.acts:
                self._say(f"watching the hub for {healthy:g} s")
                with self._hub.with_last_lines(self._hub.unit_of(spec)) as ended:
                    asyncio.run(watch_hub(spec.hub, healthy, ended))
                if has_cloud:
                    asyncio.run(wait_for_cloud(spec.hub, time.monotonic() + timeout))
                asyncio.run(wait_for_kubelet(spec.hub, time.monotonic() + timeout))
                self._end_trial(previous)
                self._renew_mirror_pod(spec)
        except FAILURES as error:
            self._say("the new hub is not healthy: going back to the previous one")
            outcome = self._roll_back(trial, _error_text(error), timeout)
            raise JoinError(f"{_error_text(error)}; {outcome}") from error

    def settle(self, timeout: float) -> None:
        """Restore the previous hub if a process was killed before the new one had been healthy for long enough.

        JoinError if a file cannot be restored.
        """
        self._ledger.remove_drafts()
        if not self._ledger.trial:
            if (installed := self.installed) is not None:
                self._end_trial(installed)
            return
        self._say("`edgehub` was killed: going back to the previous hub")
        outcome = self._roll_back(read_trial(self._ledger.trial), "`edgehub` was killed", timeout)
        if self._ledger.trial:
            raise JoinError(outcome)
        self._say(outcome)

    def _begin_trial(self, trial: Trial) -> None:
        """Start the guard, and record the previous hub on disk, before the hub is replaced.

        The guard is written first: without a recorded trial it removes itself.
        """
        guard = guard_file(trial)
        write(self._ledger.locate(guard.path), guard.data, guard.mode, None)
        if trial.previous.method == "systemd":
            self._services.start_guard()
        self._ledger.trial = trial.to_json()
        self._ledger.save()

    def _end_trial(self, previous: InstallSpec) -> None:
        """Delete the trial's record, then remove the guard. A guard that is killed in between repeats this.

        The guard's file is removed last: kubelet stops the guard then.
        """
        if self._ledger.trial:
            self._ledger.trial = {}
            self._ledger.save()
        guard = self._ledger.locate(guard_path(previous))
        remove_draft(guard)
        if not guard.exists():
            return
        if previous.method == "systemd":
            self._try(self._services.disable_guard)
        guard.unlink(missing_ok=True)
        if previous.method == "systemd":
            self._try(self._services.reload)

    def _roll_back(self, trial: Trial, why: str, timeout: float) -> str:
        """Restore the previous hub, with the reason recorded in its state folder. Return the outcome as text."""
        previous = trial.previous
        failed = asyncio.run(start_of(previous.hub)) if previous.method == "static-pod" else None
        # First, as the previous hub reads it at its start, and kubelet starts a pod as soon as its manifest is back.
        try:
            write_rollback(self._ledger.locate(previous.hub.state_dir), f"{trial.target}: {why}")
        except OSError as error:
            self._say(f"cannot report this to the fleet: {error.filename}: {error.strerror}")
        stuck = self._put_back(previous, trial.before)
        self._try(lambda: self._hub.run(previous, (FileChange(path, b"") for path in trial.before)))
        if stuck:
            return f"not all could be undone ({stuck})"
        outcome = "the previous hub runs again"
        try:
            if self.acts:
                asyncio.run(wait_for_hub(previous.hub, time.monotonic() + timeout, previous=failed))
        except NotReadyError as error:
            outcome = f"the previous hub is back, and not ready yet: {error}"
        # A kubelet that starts before the hub would retry only after up to a minute.
        if trial.moves_clients:
            self._try(lambda: self._services.restart_clients(previous.service))
        self._end_trial(previous)
        return outcome

    def uninstall(self, *, restarts_pods: bool = False) -> None:
        """Restore every file, and stop the hub. JoinError if a file cannot be restored.

        With `restarts_pods`, restart the containers that have the hub's address before the hub stops.
        """
        spec = self.installed
        if spec is None:
            self._say("no hub is installed here")
            return
        self._end_trial(spec)
        if stuck := self._remove(spec, restarts_pods=restarts_pods):
            raise JoinError(stuck)

    def _remove(
        self, spec: InstallSpec, *, restarts_clients: bool = True, restarts_pods: bool = False
    ) -> str:
        """Undo all steps of a specification. Return "", or the reason and the remedy if that fails.

        Each step can be repeated, and the ledger is removed last, so that another `uninstall` completes a killed one.
        """
        stuck = self._restore([*spec.clients, KUBELET_BOOTSTRAP])
        if restarts_clients:
            self._try(lambda: self._services.restart_clients(spec.service))
        if stuck:
            return f"{stuck}: fix that, and run `edgehub uninstall` again; the hub runs on until then"
        if self.acts:
            self._release_pods(spec, restarts=restarts_pods)
        if spec.method == "systemd":
            self._try(self._services.stop_hub)
        stuck = self._restore([spec.hub_file])
        self._free_addresses(spec)
        self._leave_fleet(spec)
        stuck = stuck or self._restore([SOCKET_FILE, OWN_KUBECONFIG, BOOTSTRAP_KUBECONFIG])
        self._try(self._services.reload)
        return f"{stuck}: fix that, and run `edgehub uninstall` again" if stuck else ""

    def _release_pods(self, spec: InstallSpec, *, restarts: bool) -> None:
        """Restart the containers that have the hub's address, or print which pods will lose the API server."""
        containers = [
            each for each in containers_at(spec.hub.pod_addresses, self._root) if each.pod != spec.pod
        ]
        names = ", ".join(sorted({each.pod for each in containers}))
        if names and not restarts:
            self._say(f"these pods have the hub's address, and no API server until they restart: {names}")
        elif names:
            self._say(f"restarting containers that have the hub's address: {names}")
            try:
                asyncio.run(wait_for_healthy_kubelet(time.monotonic() + KUBELET_WAIT))
            except NotReadyError as error:
                self._say(f"warning: {error}")
            end(containers)

    def _restore(self, paths: Iterable[Path]) -> str:
        """Restore files. Return "", or why one of them cannot be restored."""
        stuck = ""
        for path in paths:
            try:
                preserved = self._ledger.restore(path)
            except OSError as error:
                stuck = stuck or f"{path} cannot be restored: {error.strerror}"
                continue
            if preserved is not None:
                self._say(f"{path} had been changed since the installation; that version is now {preserved}")
        return stuck

    def _free_addresses(self, spec: InstallSpec) -> None:
        """Remove the addresses that the hub added to the node for pods, once the hub has ended: it restores them."""
        if not spec.hub.pod_address.makes or not self.acts:
            return
        try:
            asyncio.run(wait_until_gone(spec.hub, time.monotonic() + LIMIT_OF_STATIC_POD))
            pod_interface.remove(spec.hub.pod_addresses)
        except (NotReadyError, ValueError) as error:
            self._say(
                f"the address for pods stays: {error}; `ip link del {pod_interface.INTERFACE}` removes it"
            )

    def _leave_fleet(self, spec: InstallSpec) -> None:
        """Remove the hub from the fleet, if the cloud answers."""
        if not self.acts or not below(self._root, spec.kubeconfig).exists():
            return
        try:
            asyncio.run(_remove_status(self._credentials(spec), spec.node))
        except (ValueError, StatusError, Unreachable) as error:
            self._say(f"`edgehub fleet` still lists the hub: {error}")

    def _renew_mirror_pod(self, spec: InstallSpec) -> None:
        """Delete the mirror pod, if the cloud answers, so that kubelet creates one that shows the present image."""
        if spec.method == "static-pod":
            try:
                asyncio.run(delete_pod(spec.hub, spec.pod))
            except (StatusError, Unreachable) as error:
                self._say(f"`kubectl` still shows the previous image of {spec.pod}: {error}")

    def _credentials(self, spec: InstallSpec) -> Credentials:
        """Return the hub's credentials: its own, or those by its bootstrap token. ValueError if unreadable."""
        credentials = load_kubeconfig(spec.kubeconfig, locate=partial(below, self._root))
        if spec.identity:
            return credentials
        return saved_credentials(credentials, below(self._root, spec.hub.state_dir.absolute()))

    def _snapshot(self, changes: Iterable[FileChange]) -> dict[Path, bytes | None]:
        return {change.path: read(below(self._root, change.path)) for change in changes}

    def _put_back(self, previous: InstallSpec, before: dict[Path, bytes | None]) -> str:
        """Restore these contents for an installation that stays. Return "", or the reason if that fails."""
        try:
            if (manifest := before.get(previous.hub_file)) is not None:
                self._hub.end_pod(previous, manifest)
            self._ledger.begin(previous.to_json())
            self._ledger.apply(FileChange(path, data) for path, data in before.items() if data is not None)
            for path in (path for path, data in before.items() if data is None):
                self._ledger.restore(path)
            self._ledger.settle(previous.to_json())
        except OSError as error:
            return f"{error.filename}: {error.strerror}; fix that, and run `edgehub install` again"
        return ""

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except ServiceError as error:
            self._say(str(error))


async def _remove_status(credentials: Credentials, node: str) -> None:
    async with cloud(credentials) as client:
        await remove_status(client, node)


def _error_text(error: BaseException) -> str:
    return "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
