"""A pool of real and light nodes gets hubs, tries a bad version, upgrades and removes the hubs; the manager is killed
meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from addons.startup.rollback import read_rollback
from tests.cloud.hollow import is_ready
from tests.cloud.link import Link
from tests.cloud.real import RealCloud
from tests.controllers.nodes.support.converted_nodes import ConvertedPool
from tests.controllers.nodes.support.nodes_cloud import nodes_cloud, nodes_manager
from tests.controllers.nodes.support.simulated_node import NO_HUB
from tests.controllers.support.scene import NODES, POOL_LABEL, condition
from tests.hub.support.checkouts import with_version
from tests.hub.support.installed_node import InstalledNode, hold_pods
from tests.hub.support.light_node import light_node
from tests.hub.support.machine import LIMIT, Machine

BAD, GOOD = "0.3.0", "0.3.1"
IN_PROGRESS = ("start", "run", "check")
GRACE = 20
"""Seconds of silence after which the cloud marks a node as unknown."""
STEPS = ("join", "bad version", "roll forward", "leave")

type Minutes = Callable[[str, float], None]
"""Called with the name of each step, and its minutes."""


class Rollout(ConvertedPool):
    """The pool's running nodes, as a context manager."""

    patience = 600.0
    interval = 0.5

    def __init__(
        self,
        cloud: RealCloud,
        programs: Mapping[str, Path],
        folder: Path,
        *,
        real: int,
        light: int,
        wave: str,
    ) -> None:
        super().__init__(cloud, {"edgehub.io/max-unavailable": wave})
        self._programs, self._folder = programs, folder
        self._real, self._light = real, light
        self._link = Link(cloud.host, cloud.port)
        self._stack = ExitStack()
        self.installed: list[InstalledNode] = []
        self.broken = self.away = ""
        """The node whose doctor reports an error, and the node whose link is cut at times."""

    def __enter__(self) -> Rollout:
        with ExitStack() as stack:
            hold_pods(self.cloud)
            stack.enter_context(self._link)
            good = with_version(GOOD, self._folder / GOOD)
            every = (self._real + self._light) // self._real
            for number in range(self._real + self._light):
                is_real = number % every == 0 and len(self.installed) < self._real
                self.members.append(self._start_real(stack, good) if is_real else self._create())
            light = [name for name in self.members if name not in self._names_of_real()]
            self.broken, self.away = light[-2:]
            (self._folder / self.broken).touch()
            for name in light:
                server = (
                    f"https://{self._link.host}:{self._link.port}" if name == self.away else self.cloud.url
                )
                stack.callback(light_node(self.cloud, name, server, self._folder, BAD).kill)
            for name in self.members:
                self.admin.wait_for(NODES, name, is_ready, timeout=LIMIT)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *ending: object) -> None:
        self._stack.__exit__(None, None, None)

    def start_manager(self, *, kill: bool = False) -> None:
        """Start a manager; with `kill`, kill the running one first."""
        if kill:
            self._managers[-1].process.kill()
        folder = self._folder / self.name("manager")
        folder.mkdir()
        self._managers = [self._stack.enter_context(nodes_manager(self.cloud, folder))]

    def repair(self) -> None:
        """Remove the error that a doctor found, and let the manager retry the node."""
        (self._folder / self.broken).unlink()
        self.try_again(self.broken)

    def leave_cloud(self) -> None:
        """Cut the link of the absent node."""
        self._link.black_hole()

    def wait_until_away(self) -> None:
        """Wait until the cloud has marked the node as absent."""
        self.admin.wait_for(NODES, self.away, lambda node: not is_ready(node), timeout=LIMIT)

    def come_back(self) -> None:
        self._link.carry()

    def count(self, phase: str) -> int:
        return [*self.phases().values()].count(phase)

    def is_quiet(self) -> bool:
        """Return True if no node is being converted."""
        return not any(phase.endswith(IN_PROGRESS) for phase in self.phases().values())

    def fleet(self) -> str:
        kubeconfig = str(self.cloud.admin_kubeconfig())
        command = [sys.executable, "-m", "addons.command", "fleet", "--kubeconfig", kubeconfig]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    def _names_of_real(self) -> set[str]:
        return {each.machine.node for each in self.installed}

    def _create(self) -> str:
        name = self.name("node")
        self.admin.post(NODES, {"metadata": {"name": name, "labels": {POOL_LABEL: self.name_of_pool}}})
        return name

    def _start_real(self, stack: ExitStack, good: Path) -> str:
        name = self._create()
        folder = self._folder / f"real-{name}"
        folder.mkdir()
        machine = stack.enter_context(Machine(folder, self.cloud, self.cloud.url, name, self._programs))
        node = InstalledNode(machine, self.cloud)
        node.static_pods.broken.add(f"edgehub:{BAD}")
        node.static_pods.packages[f"edgehub:{GOOD}"] = good
        self.installed.append(stack.enter_context(node))
        return name


@contextmanager
def rollout(
    folder: Path, programs: Mapping[str, Path], helm: Path, *, real: int, light: int, wave: str
) -> Iterator[Rollout]:
    """Create a pool with its own control plane, whose node controller detects absent nodes."""
    flags = [f"--node-monitor-grace-period={GRACE}s"]
    with (
        nodes_cloud(
            folder / "cloud", programs, helm, controllers=["node-lifecycle-controller"], manager_flags=flags
        ) as cloud,
        Rollout(cloud, programs, folder, real=real, light=light, wave=wave) as made,
    ):
        yield made


def run(pool: Rollout, tell: Minutes) -> None:
    """Execute all steps. AssertionError if one does not end as expected."""
    files = [node.machine.files() for node in pool.installed]
    for name, step in zip(STEPS, (_join, _meet_a_bad_version, _roll_forward, _leave), strict=True):
        began = time.monotonic()
        step(pool)
        tell(name, (time.monotonic() - began) / 60)
    assert [node.machine.files() for node in pool.installed] == files, "as before, byte for byte"


def _join(pool: Rollout) -> None:
    """Install hubs on the nodes; one node is absent, and the doctor of another reports an error."""
    pool.leave_cloud()
    size = len(pool.members)
    pool.start_manager()
    pool.wait_until_away()
    pool.label(pool.members)
    pool.until(lambda: pool.count("install/done") > 0)
    pool.start_manager(kill=True)
    pool.until(lambda: pool.pool_condition()[0] == "Stopped" and pool.is_quiet())
    assert pool.phases()[pool.broken] == "install/failed"
    found = condition(pool.admin.get(f"{NODES}/{pool.broken}"), "HubInstalled")
    assert (found["reason"], found["message"]) == ("InstallFailed", NO_HUB)
    pool.repair()
    waiting = f"{size - 1} of {size} nodes have a hub; waiting for the node: {pool.away}"
    pool.until(lambda: pool.pool_condition() == ("Waiting", waiting))
    pool.come_back()
    pool.until(lambda: pool.pool_condition() == ("Complete", f"{size} of {size} nodes have a hub"))
    assert pool.jobs() == sorted([*pool.members, pool.broken]), "each had one Job, and the broken one two"


def _meet_a_bad_version(pool: Rollout) -> None:
    """Upgrade a wave to a bad version; each of its nodes rolls back. A node of a later wave goes absent."""
    pool.ask_for(BAD)
    pool.leave_cloud()
    pool.until(lambda: pool.pool_condition()[0] == "Stopped" and pool.is_quiet())
    size, failures = len(pool.members), pool.count("upgrade/failed")
    assert len(pool.jobs("upgrade")) == failures < size, "one wave"
    stopped = f"{size} of {size} nodes have a hub, 0 of them {BAD}; "
    pool.until(lambda: "failed: " in pool.pool_condition()[1])
    assert pool.pool_condition()[1].startswith(stopped)
    phases = pool.phases()
    real = [node for node in pool.installed if phases[node.machine.node] == "upgrade/failed"]
    assert real, "a real installation was among them"
    for node in real:
        assert node.static_pods.images[-2:] == [f"edgehub:{BAD}", "edgehub:0.2.0"]
        assert read_rollback(node.machine.state).startswith(f"edgehub:{BAD}: ")
        found = condition(pool.admin.get(f"{NODES}/{node.machine.node}"), "HubInstalled")
        assert (found["status"], found["reason"]) == ("True", "UpgradeFailed")
        assert "the previous hub runs again" in found["message"]
    pool.until(lambda: pool.fleet().count(f"rolled back from edgehub:{BAD}: ") == failures)


def _roll_forward(pool: Rollout) -> None:
    """Upgrade again; one node is absent, and the nodes that rolled back are retried."""
    tried, size = pool.jobs("upgrade"), len(pool.members)
    pool.wait_until_away()
    pool.ask_for(GOOD)
    pool.until(lambda: pool.count("upgrade/done") > 0)
    pool.start_manager(kill=True)
    waiting = (
        f"{size} of {size} nodes have a hub, {size - 1} of them {GOOD}; waiting for the node: {pool.away}"
    )
    pool.until(lambda: pool.pool_condition() == ("Waiting", waiting))
    pool.come_back()
    done = f"{size} of {size} nodes have a hub, {size} of them {GOOD}"
    pool.until(lambda: pool.pool_condition() == ("Complete", done))
    assert pool.jobs("upgrade") == sorted([*pool.members, *tried]), "each node once"
    for node in pool.installed:
        assert node.static_pods.images[-1] == f"edgehub:{GOOD}"
    pool.until(lambda: "rolled back" not in pool.fleet())


def _leave(pool: Rollout) -> None:
    pool.label(pool.members, None)
    pool.until(pool.are("uninstall/done"))
    assert pool.jobs("uninstall") == pool.members
