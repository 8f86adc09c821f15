"""`edgehub upgrade` with a failing program: the previous one is restored, without a user and without a cloud."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import urllib3

from addons.install.services.system_services import GUARD_UNIT
from addons.startup.rollback import read_rollback
from tests.cloud.hollow import is_ready
from tests.cloud.link import Link
from tests.cloud.ports import free_port
from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.controllers.support.scene import Scene
from tests.hub.support.machine import LIMIT, Machine, edgehub

pytestmark = [pytest.mark.real]


@pytest.fixture
def installed(machine: Machine) -> Machine:
    """Return a node with its hub."""
    services = ("--systemctl", str(machine.systemctl), "--timeout", str(LIMIT))
    done = edgehub(machine, "install", *services, hub=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return machine


def made(folder: Path, name: str, text: str) -> str:
    """Return a program with this text."""
    program = folder / name
    program.write_text(text.format(program=Path(sys.executable).with_name("edgehub")))
    program.chmod(0o755)
    return str(program)


def test_a_failing_upgrade_is_rolled_back_without_a_cloud(
    installed: Machine, real_cloud: RealCloud, to_cloud: Link, tmp_path: Path
) -> None:
    def fleet(kubeconfig: str) -> str:
        command = [sys.executable, "-m", "addons.command", "fleet", "--kubeconfig", kubeconfig]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    def renew(machine: Machine) -> bool:
        """Renew the node's Lease like kubelet; the hub relays it, as the hollow kubelet has another User-Agent."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{machine.node}"
        with urllib3.PoolManager(headers={"User-Agent": "kubelet/v1"}, retries=False) as http:
            lease = http.request("GET", machine.url + path)
            return (
                lease.status == 200
                and http.request("PUT", machine.url + path, json=lease.json()).status == 200
            )

    before, state = installed.files(), installed.state
    services = ("--systemctl", str(installed.systemctl))
    to_cloud.refuse()
    ends = "#!/bin/sh\nexit 3\n"
    never_ready = "#!/bin/sh\nexec sleep 600\n"
    for_a_while = '#!/bin/sh\nexec timeout --signal=KILL 12 {program} "$@"\n'
    for name, text, flags, why in (
        ("ends", ends, ("--timeout", "10"), "the hub does not answer"),
        ("never-ready", never_ready, ("--timeout", "10"), "the hub does not answer"),
        ("for-a-while", for_a_while, ("--timeout", "60", "--healthy", "60"), "the hub "),
    ):
        program = made(tmp_path, name, text)
        failed = edgehub(installed, "upgrade", *services, *flags, "--program", program)
        assert failed.returncode == 1
        assert why in failed.stderr, failed.stderr
        assert "the previous hub runs again" in failed.stderr, failed.stderr
        assert installed.files() == before, "byte for byte, the ledger too"
        assert read_rollback(state).startswith(f"{program}: {why}")
    missing = edgehub(installed, "upgrade", *services, "--program", str(tmp_path / "no-such"))
    assert "nothing was changed" in missing.stderr
    assert installed.files() == before

    to_cloud.carry()
    kubeconfig = str(real_cloud.admin_kubeconfig())
    scene = Scene(real_cloud, [])
    scene.until(
        lambda: renew(installed) and f"rolled back from {tmp_path}/for-a-while: " in fleet(kubeconfig)
    )
    good = made(tmp_path, "good", '#!/bin/sh\nexec {program} "$@"\n')
    upgraded = edgehub(
        installed, "upgrade", *services, "--timeout", str(LIMIT), "--healthy", "3", "--program", good
    )
    assert upgraded.returncode == 0, upgraded.stdout + upgraded.stderr
    scene.until(lambda: renew(installed) and "rolled back" not in fleet(kubeconfig))


def test_a_failing_installation_over_another_is_rolled_back(
    installed: Machine, real_cloud: RealCloud
) -> None:
    """Among them a hub that is ready by its copies, and does not reach the cloud."""
    before = installed.files()
    services = ("--systemctl", str(installed.systemctl), "--timeout", "15", "--healthy", "1")
    for more, why in (
        (("--no-such-option",), "the hub does not answer"),
        (("--tls-port", str(installed.ports["port"])), "the hub does not answer"),
        (("--server", "https://127.0.0.1:1"), "the hub does not reach the cloud"),
    ):
        failed = edgehub(installed, "install", *services, hub=True, more=more)
        assert failed.returncode == 1
        assert why in failed.stderr, failed.stderr
        assert "the previous hub runs again" in failed.stderr, failed.stderr
        assert installed.files() == before, "byte for byte, the ledger too"
        assert read_rollback(installed.state).startswith(f"`edgehub install`: {why}")
    real_cloud.admin.wait_for("/api/v1/nodes", installed.node, is_ready, timeout=LIMIT)
    done = edgehub(installed, "install", *services, hub=True, more=("--disabled-filters", "masterservice"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert read_rollback(installed.state) == ""


def test_a_killed_installation_over_another_is_rolled_back(installed: Machine, tmp_path: Path) -> None:
    """Killed when kubelet has its new kubeconfig."""
    before, ports = installed.files(), dict(installed.ports)
    installed.ports |= {"port": free_port(), "tls-port": free_port()}
    installed.ends = {"restart kubelet.service": signal.SIGKILL}
    killed = edgehub(installed, "install", "--systemctl", str(installed.systemctl), hub=True)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    installed.process(GUARD_UNIT).wait_for_line("the previous hub runs again", LIMIT)
    assert installed.files() == before, "byte for byte, the ledger too"
    assert (
        "restart kubelet.service"
        in installed.called[installed.called.index("start --no-block edgehub-upgrade.service") :]
    )
    installed.ports = ports


@pytest.mark.parametrize("power_fails", [False, True])
def test_a_killed_upgrade_is_rolled_back(
    installed: Machine, to_cloud: Link, tmp_path: Path, power_fails: bool
) -> None:
    before = installed.files()
    to_cloud.refuse()
    edgehub_program = str(Path(sys.executable).with_name("edgehub"))
    good = made(tmp_path, "good", '#!/bin/sh\nexec {program} "$@"\n')
    flags = (
        "--root",
        installed.root,
        "--systemctl",
        installed.systemctl,
        "--healthy",
        "600",
        "--program",
        good,
    )
    upgrade = Process("upgrade", [edgehub_program, "upgrade", *map(str, flags)], tmp_path)
    upgrade.wait_for_line("watching the hub", LIMIT)
    if power_fails:
        installed.process(GUARD_UNIT).kill()
    upgrade.kill()
    if power_fails:
        assert installed.files() != before
        installed.boot(GUARD_UNIT)
    installed.process(GUARD_UNIT).wait_for_line("the previous hub runs again", LIMIT)
    assert installed.files() == before, "byte for byte, the ledger too"
    assert read_rollback(installed.state) == f"{good}: `edgehub` was killed"
