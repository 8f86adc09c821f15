"""Upgrades of a node's hub that fail, or are killed or rebooted at each step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex

from scripts.node_machine import cloud, lifecycle, network
from scripts.node_machine.commands import until
from scripts.node_machine.instances import Instance
from scripts.node_machine.machine import Machine
from scripts.node_machine.network import Cut
from scripts.node_machine.userland import HUB
from tests.node.support import hub
from tests.node.support.callers import LONG

UNIT = "/etc/systemd/system/edgehub.service"
GUARDS = "/etc/kubernetes/manifests/edgehub-upgrade.yaml", "/etc/systemd/system/edgehub-upgrade.service"
KILLED = """\
import os, signal, sys
from edgehub import hub
steps = int(sys.argv.pop(1))
def count(event, args):
    global steps
    if event == "subprocess.Popen":
        is_step = not {"show", "status", "is-active"} & {*args[1]}
    else:
        is_step = event in ("os.rename", "os.remove") and not str(args[0]).endswith(".edgehub-new")
        is_step |= event == "os.rename"
    steps -= is_step
    if is_step and not steps:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
hub()
"""
"""A program that runs `edgehub`, and kills it before a given number of file changes and systemctl calls."""

FILES = """\
cd /
find etc/kubernetes etc/systemd var/lib/edgehub-install \\
    -type f -exec sha256sum {} + -o -type l -printf '%p %l\\n' | sort
"""


@dataclass(frozen=True, slots=True)
class Upgrades:
    """Upgrades of a node's hub, for one installation method."""

    node: Machine
    file: str
    """The unit or the static pod."""
    former: str
    """The flag of the running version."""
    target: str
    """The flag of another working version."""
    bad: Sequence[str]
    """The flags of failing versions."""
    steps: Sequence[int] = range(1, 100)
    """The steps before which upgrades are killed, until one completes."""

    def command(self, *flags: str) -> list[str]:
        return ["edgehub", "upgrade", "--timeout=60", *flags]

    def files(self) -> str:
        """Return the files that an upgrade changes, with their contents, and the units enabled at boot."""
        return self.node.run("sh", "-euc", FILES)

    def has_guard(self) -> bool:
        return any(not self.node.try_run("test", "-e", path).returncode for path in GUARDS)

    def wait_until_back(self, *found: str) -> None:
        """Wait until the files equal one of these, the guard has ended, and the hub is ready."""
        until("the guard has ended", lambda: not self.has_guard(), LONG)
        until("the files are as they were", lambda: self.files() in found, LONG)
        hub.wait_until_ready(self.node)

    def meet_bad_versions(self) -> None:
        before = self.files()
        for flag in self.bad:
            done = self.node.try_run(*self.command("--timeout=15", flag))
            assert done.returncode == 1, done.stdout + done.stderr
            assert "the previous hub runs again" in done.stderr, done.stderr
            assert self.files() == before, "byte for byte, the ledger too"

    def die_at_each_step(self) -> None:
        """Kill an upgrade before each of `steps`, until one completes."""
        before, outcomes = self.files(), list[str]()
        for step in self.steps:
            flags = ("upgrade", "--healthy=1", self.target)
            began = time.monotonic()
            done = self.node.try_run(f"{HUB}/bin/python", "-Bc", KILLED, str(step), *flags)
            if not done.returncode:
                break
            assert done.returncode in (-9, 137), done.stdout + done.stderr
            if self.files() == before or not self.has_trial():
                # The guard had not been started, or ended at once.
                self.node.run("edgehub", "upgrade", "--settle")
            until("the guard has ended", lambda: not self.has_guard(), LONG)
            hub.wait_until_ready(self.node)
            outcomes.append("former" if self.files() == before else "new")
            print(f"killed before step {step}: the {outcomes[-1]} one, {time.monotonic() - began:.0f} s")
            if outcomes[-1] == "new":
                assert self.target.partition("=")[2] in self.node.run("cat", self.file)
                break
        assert outcomes.count("former") >= min(5, len(self.steps)), outcomes

    def has_trial(self) -> bool:
        return not self.node.try_run(
            "grep", "-q", '"trial"', "/var/lib/edgehub-install/ledger.json"
        ).returncode

    def reboot_amid(self, instance: Instance) -> None:
        """Reboot the node without a link while an upgrade watches the new hub."""
        before = self.files()
        flags = self.command("--healthy=600", self.target)
        self.node.run("systemd-run", "--unit=trial", *flags)
        until("the new hub runs", lambda: "watching the hub" in self.log("trial"), LONG)
        assert self.files() != before
        lifecycle.reboot(instance, self.node.name, offline=True, later="")
        self.wait_until_back(before)

    def die_amid_installation(self, *flags: str) -> None:
        """Kill an installation with other flags when kubelet speaks to the new hub."""
        before = self.files()
        unit = self._install_again(*flags)
        assert self.files() != before
        self.node.run("systemctl", "kill", "--signal=KILL", unit)
        self.wait_until_back(before)
        until("kubelet writes by the previous hub", lambda: hub.has_heard_kubelet(self.node), LONG)

    def install_flags_that_fail(self, clouds: Machine, *flags: str) -> None:
        """Install with a flag that no hub knows; and with others, whose hub is killed once the link is cut."""
        before = self.files()
        done = self.node.try_run("edgehub", "install", "--timeout=60", *flags, "--nonsense=1")
        assert done.returncode == 1, done.stdout + done.stderr
        assert "unrecognized arguments: --nonsense=1" in done.stderr, done.stderr
        assert "the previous hub runs again" in done.stderr, done.stderr
        assert self.files() == before, "byte for byte, the ledger too"

        unit = self._install_again(*flags)
        network.cut(clouds, self.node.name, Cut.HOLE)
        self.node.run("systemctl", "kill", "--signal=KILL", "edgehub")
        until("the reason", lambda: "the previous hub runs again" in self.log(unit), LONG)
        self.wait_until_back(before)
        until("kubelet writes by the previous hub", lambda: hub.has_heard_kubelet(self.node), LONG)
        network.heal(clouds, self.node.name)

    def _install_again(self, *flags: str) -> str:
        """Start an installation with other flags; return its unit when kubelet writes through the new hub."""
        unit = f"again-{token_hex(4)}"
        self.node.run("systemd-run", f"--unit={unit}", "edgehub", "install", "--healthy=600", *flags)
        until("the new hub runs", lambda: "watching the hub" in self.log(unit), LONG)
        until("kubelet writes by the new hub", lambda: hub.has_heard_kubelet(self.node), LONG)
        return unit

    def log(self, unit: str) -> str:
        return self.node.run("journalctl", f"--unit={unit}", "--no-pager")


def check(upgrades: Upgrades, instance: Instance, clouds: Machine) -> None:
    """Check all failures without a cloud."""
    node = upgrades.node
    network.cut(clouds, node.name, Cut.HOLE)
    upgrades.meet_bad_versions()
    upgrades.die_at_each_step()
    node.run(*upgrades.command("--healthy=1", upgrades.former))
    upgrades.reboot_amid(instance)
    network.heal(clouds, node.name)
    cloud.kubectl(clouds, "wait", "--for=condition=Ready", f"--timeout={LONG:.0f}s", f"node/{node.name}")
