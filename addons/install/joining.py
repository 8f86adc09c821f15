"""Puts a node behind its hub, and takes it back. When a step fails, the steps before it are undone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from addons.install.changes import FileChange, Ledger, below, diff, read
from addons.install.system_services import ServiceError, Services
from addons.install.waiting import NotReadyError, count_writes, wait_for_hub, wait_for_node
from addons.install.wish import (
    BOOTSTRAP_KUBECONFIG,
    LEDGER,
    OWN_KUBECONFIG,
    SOCKET_FILE,
    STATIC_POD,
    UNIT_FILE,
    Wish,
    read_wish,
)
from kube.errors import StatusError
from kube.http.client import Unreachable

FAILURES = (NotReadyError, ServiceError, OSError, StatusError, Unreachable, KeyboardInterrupt)
"""The errors that end an installation halfway."""


class JoinError(Exception):
    """The node is as it was before; the message says why it could not be changed."""


class Joining:
    """The installation below one root."""

    def __init__(self, root: Path, services: Services, say: Callable[[str], None]) -> None:
        self._root = root
        self._services = services
        self._say = say
        self._ledger = Ledger(root, LEDGER)

    @property
    def installed(self) -> Wish | None:
        """What is installed below this root; None where nothing is."""
        return None if self._ledger.is_empty else read_wish(self._ledger.settings)

    @property
    def acts(self) -> bool:
        """Whether the installation starts and stops services, or only writes files."""
        return self._services.can_be_called

    def plan(self, wish: Wish) -> list[FileChange]:
        """The changes of files that the installation still has to make; ValueError where it cannot be made."""
        former = self.installed
        if former is not None and former.method != wish.method:
            raise ValueError(f"the hub is installed by {former.method}: `edgehub uninstall` first")
        self._accept_new_originals(wish)
        return self._ledger.pending([*wish.hub_changes(self._ledger), *wish.client_changes(self._ledger)])

    def show(self, wish: Wish) -> None:
        """Print each file that would change as a diff."""
        pending = self.plan(wish)
        for change in pending:
            self._say(diff(self._root, change).rstrip("\n"))
        if not pending:
            self._say("every file is as it shall be")

    def install(self, wish: Wish, timeout: float) -> None:
        """Put the node behind the hub, and wait until the node is Ready. Where it does not become Ready, undo all
        steps and raise JoinError."""
        deadline = time.monotonic() + timeout
        pending = self.plan(wish)
        hub_files = wish.hub_files
        before, former = self._snapshot(pending), self.installed
        self._ledger.settings = wish.to_json()
        try:
            self._ledger.apply(each for each in pending if each.path in hub_files)
            if any(each.path in hub_files for each in pending) or not self._is_up(wish):
                self._start_hub(wish, deadline, pending)
            self._ledger.apply(each for each in pending if each.path not in hub_files)
            if any(each.path not in hub_files for each in pending):
                self._move_clients(wish, deadline)
        except FAILURES as error:
            self._undo(wish, former, before)
            raise JoinError(f"{_said(error)}; everything is as it was") from error

    def upgrade(self, program: str, timeout: float) -> None:
        """Start the hub anew with the present program; copies, and the versions that clients resume from, stay."""
        former = self.installed
        if former is None:
            raise JoinError("no hub is installed here")
        wish = read_wish({**former.to_json(), "program": program})
        deadline = time.monotonic() + timeout
        changes = wish.hub_changes(self._ledger)
        before = self._snapshot(changes)
        self._ledger.settings = wish.to_json()
        try:
            pending = self._ledger.pending(changes)
            self._ledger.apply(pending)
            self._start_hub(wish, deadline, pending)
        except FAILURES as error:
            self._ledger.settings = former.to_json()
            self._ledger.apply(FileChange(path, data) for path, data in before.items() if data is not None)
            self._try(lambda: self._run_hub(former, changes))
            raise JoinError(f"{_said(error)}; the former program runs again") from error

    def uninstall(self) -> None:
        """Restore every file, and stop the hub. A step that fails does not keep the later ones from being tried."""
        wish = self.installed
        if wish is None:
            self._say("no hub is installed here")
            return
        self._remove(wish)

    def _remove(self, wish: Wish) -> None:
        for path in wish.clients:
            self._restore(path)
        self._try(lambda: self._services.restart_clients(wish.service))
        if wish.method == "systemd":
            self._try(lambda: self._services.stop_hub(has_sockets=bool(wish.hub.handed_over)))
        for path in (UNIT_FILE, SOCKET_FILE, STATIC_POD, OWN_KUBECONFIG, BOOTSTRAP_KUBECONFIG):
            self._restore(path)
        self._try(self._services.reload)

    def _restore(self, path: Path) -> None:
        kept = self._ledger.restore(path)
        if kept is not None:
            self._say(f"{path} had been changed since the installation; that version is now {kept}")

    def _accept_new_originals(self, wish: Wish) -> None:
        """Where somebody has written a kubeconfig since, and it leads to the cloud, `uninstall` goes back to that
        one."""
        for change in wish.client_changes(self._ledger):
            self._ledger.accept(change.path, wish.hub.plain_url)

    def _run_hub(self, wish: Wish, changed: Iterable[FileChange]) -> None:
        """Have systemd start the hub, after these files have changed; kubelet starts a static pod by itself."""
        if wish.method == "systemd":
            opens_anew = any(each.path == SOCKET_FILE for each in changed)
            self._services.start_hub(has_sockets=bool(wish.hub.handed_over), opens_anew=opens_anew)

    def _start_hub(self, wish: Wish, deadline: float, changed: Iterable[FileChange]) -> None:
        if not self._services.can_be_called:
            return
        self._run_hub(wish, changed)
        self._say(f"waiting for the hub at {wish.hub.admin_url}")
        asyncio.run(wait_for_hub(wish.hub, deadline))

    def _move_clients(self, wish: Wish, deadline: float) -> None:
        if not self._services.can_be_called:
            return
        writes = asyncio.run(count_writes(wish.hub))
        self._services.restart_clients(wish.service)
        self._say(f"waiting until kubelet keeps {wish.node} Ready through the hub")
        asyncio.run(wait_for_node(wish.hub, wish.node, writes, deadline))

    def _is_up(self, wish: Wish) -> bool:
        try:
            asyncio.run(wait_for_hub(wish.hub, 0.0))
        except NotReadyError:
            return False
        return True

    def _snapshot(self, changes: Iterable[FileChange]) -> dict[Path, bytes | None]:
        return {each.path: read(below(self._root, each.path)) for each in changes}

    def _undo(self, wish: Wish, former: Wish | None, before: dict[Path, bytes | None]) -> None:
        """Restore the files as they were when this run began: those of an earlier installation, or the node's own."""
        self._say("this does not work: undoing everything")
        if former is None:
            self._remove(wish)
            return
        self._ledger.settings = former.to_json()
        self._ledger.apply(FileChange(path, data) for path, data in before.items() if data is not None)
        self._try(lambda: self._run_hub(former, wish.hub_changes(self._ledger)))
        self._try(lambda: self._services.restart_clients(former.service))

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except ServiceError as error:
            self._say(str(error))


def _said(error: BaseException) -> str:
    return "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
