"""Installations below a root without services; `tests/hub/test_installation.py` installs on a running node."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from addons.install.changes import Ledger
from addons.install.hub_service import HubService
from addons.install.install_spec import LEDGER, InstallSpec, Method
from addons.install.installation import Installation, JoinError
from addons.install.services.system_services import KUBELET_UNIT, Services
from addons.startup.rollback import read_rollback
from kube.http.kubeconfig import load_kubeconfig
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.ports import free_port

KUBELET = "/etc/kubernetes/kubelet.conf"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc/kubernetes").mkdir(parents=True)
    write_kubeconfig(tmp_path / KUBELET[1:], "https://cloud:6443", token="secret")
    return tmp_path


@pytest.fixture
def spec() -> InstallSpec:
    flags = ("--port", str(free_port()), "--admin-port", str(free_port()))
    return InstallSpec("n1", "systemd", "/usr/bin/edgehub", "", flags, KUBELET, KUBELET, ())


def installation(root: Path, said: list[str] | None = None, systemctl: str = "") -> Installation:
    return Installation(root, Services(systemctl), (said if said is not None else []).append)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_files_are_written_and_reverted(root: Path, spec: InstallSpec) -> None:
    before, said = files(root), list[str]()
    installation(root, said).show(spec)
    assert "secret" not in "".join(said)
    assert files(root) == before
    installation(root).install(spec, 1, 0)
    assert installation(root).installed == spec
    assert installation(root).plan(spec) == []
    assert load_kubeconfig(root / KUBELET[1:]).cluster.server == spec.hub.plain_url
    assert load_kubeconfig(root / "etc/kubernetes/edgehub.conf").user.bearer == "Bearer secret"
    installation(root, said := []).show(spec)
    assert said == ["every file is up to date"]
    installation(root).uninstall()
    assert files(root) == before
    installation(root, said := []).uninstall()
    assert said == ["no hub is installed here"]


def test_a_dry_run_names_the_services_to_restart(root: Path, spec: InstallSpec) -> None:
    installation(root, said := list[str](), "/no/such/systemctl").show(spec)
    assert said[-2:] == [
        "edgehub.service would be restarted",
        "kubelet.service would be restarted, and kube-proxy.service where it runs",
    ]
    installation(root).install(spec, 1, 0)
    installation(root, said := list[str](), "/no/such/systemctl").show(
        dataclasses.replace(spec, program="/other")
    )
    assert said[-1] == "edgehub.service would be restarted"
    installation(root, said := list[str](), "/no/such/systemctl").show(spec)
    assert said == ["every file is up to date"]


def test_uninstall_restores_a_kubeconfig_that_was_renewed_meanwhile(root: Path, spec: InstallSpec) -> None:
    installation(root).install(spec, 1, 0)
    write_kubeconfig(root / KUBELET[1:], "https://cloud:6443", token="renewed")
    renewed = (root / KUBELET[1:]).read_bytes()
    installation(root).install(spec, 1, 0)
    assert load_kubeconfig(root / KUBELET[1:]).cluster.server == spec.hub.plain_url
    assert load_kubeconfig(root / "etc/kubernetes/edgehub.conf").user.bearer == "Bearer renewed"
    installation(root).uninstall()
    assert (root / KUBELET[1:]).read_bytes() == renewed


def test_a_hub_installed_by_another_method_is_left_alone(root: Path, spec: InstallSpec) -> None:
    installation(root).install(spec, 1, 0)
    with pytest.raises(ValueError, match="the hub is installed by systemd: `edgehub uninstall` first"):
        installation(root).plan(dataclasses.replace(spec, method="static-pod"))


def test_a_failed_installation_is_undone_to_the_state_before_it(root: Path, spec: InstallSpec) -> None:
    before, said = files(root), list[str]()
    broken = installation(root, said, "/no/such/systemctl")
    with pytest.raises(JoinError, match="everything is as it was"):
        broken.install(spec, 1, 0)
    assert files(root) == before
    installation(root).install(spec, 1, 0)
    installed = files(root)
    with pytest.raises(JoinError, match="the previous hub is back, and not ready yet"):
        installation(root, said, "/no/such/systemctl").install(
            dataclasses.replace(spec, program="/other"), 1, 0
        )
    assert files(root) == installed
    with pytest.raises(JoinError, match="the previous hub is back, and not ready yet"):
        installation(root, said, "/no/such/systemctl").upgrade("/other", "", 1, 0)
    assert files(root) == installed


class KilledError(BaseException):
    """Ends the process without a signal handler, as SIGKILL does."""


class KilledServices(Services):
    """Services that kill the process at their first start."""

    def start_hub(self, *, opens_anew: bool = False) -> None:
        raise KilledError


@pytest.mark.parametrize("finishes", [True, False])
def test_a_killed_run_is_finished_or_reverted_by_the_next(
    root: Path, spec: InstallSpec, finishes: bool
) -> None:
    before = files(root)
    with pytest.raises(KilledError):
        Installation(root, KilledServices("systemctl"), print).install(spec, 1, 0)
    assert files(root) != before
    with pytest.raises(JoinError, match="was killed before its end"):
        installation(root).upgrade("/other", "", 1, 0)
    if finishes:
        installation(root).install(spec, 1, 0)
        assert load_kubeconfig(root / KUBELET[1:]).cluster.server == spec.hub.plain_url
        installation(root).upgrade("/other", "", 1, 0)
    installation(root).uninstall()
    assert files(root) == before


def test_a_new_installation_reports_no_rollback_of_an_earlier_one(root: Path, spec: InstallSpec) -> None:
    (state := root / "var/lib/edgehub").mkdir(parents=True)
    installation(root).install(spec, 1, 0)
    with pytest.raises(JoinError):
        installation(root, systemctl="/no/such/systemctl").upgrade("/other", "", 1, 0)
    assert read_rollback(state).startswith("/other: ")
    installation(root).uninstall()
    installation(root).install(spec, 1, 0)
    assert read_rollback(state) == ""


def test_a_killed_upgrade_is_reverted(root: Path, spec: InstallSpec) -> None:
    installation(root).install(spec, 1, 0)
    before = files(root)
    settling: tuple[Callable[[], None], ...] = (
        lambda: installation(root).settle(1),
        lambda: installation(root).install(spec, 1, 0),
        lambda: installation(root).upgrade(spec.program, "", 1, 0),
    )
    for settle in settling:
        with pytest.raises(KilledError):
            Installation(root, KilledServices("true"), print).upgrade("/other", "", 1, 0)
        guard = (root / "etc/systemd/system/edgehub-upgrade.service").read_text()
        assert "ExecStart=/usr/bin/edgehub upgrade --settle" in guard
        settle()
        assert {path: data for path, data in files(root).items() if "rolled-back" not in path} == before
    with pytest.raises(KilledError):
        Installation(root, KilledServices("true"), print).upgrade("/other", "", 1, 0)
    for name in ("edgehub", "edgehub-upgrade"):
        (root / f"etc/systemd/system/.{name}.service.edgehub-new").write_text("killed amid a write")
    installation(root).uninstall()
    assert not [path for path in files(root) if path.startswith("etc/systemd")]


@pytest.mark.parametrize("method", ["systemd", "static-pod"])
def test_a_killed_installation_over_another_is_reverted(
    root: Path, spec: InstallSpec, method: Method
) -> None:
    """The files, the ledger and drafts of both; and clients restart, by a static pod with the host's systemctl."""

    class Recorded(Services):
        restarted = False

        def restart_clients(self, kubelet: str = KUBELET_UNIT) -> None:
            self.restarted = True

    def die(text: str) -> None:
        if text.startswith("waiting for the hub"):
            raise KilledError

    previous = dataclasses.replace(spec, method=method, image="hub:1")
    installation(root).install(previous, 1, 0)
    before = files(root)
    other = dataclasses.replace(
        previous, flags=("--port", str(free_port()), "--admin-port", str(free_port()))
    )
    with pytest.raises(KilledError):
        Installation(root, Services("true"), die).install(other, 1, 0)
    assert files(root) != before
    (guard,) = (root / "etc").rglob("edgehub-upgrade.*")
    assert ("nsenter" in guard.read_text()) == (method == "static-pod")
    for path in (KUBELET, str(previous.hub_file), str(LEDGER / "ledger.json")):
        installed = root / path[1:]
        installed.with_name(f".{installed.name}.edgehub-new").write_text("killed amid a write")
    services = Recorded("true")
    Installation(root, services, print).settle(0)
    assert services.restarted
    assert {path: data for path, data in files(root).items() if "rolled-back" not in path} == before


def test_a_killed_run_whose_repetition_fails_leaves_nothing(root: Path, spec: InstallSpec) -> None:
    before = files(root)
    with pytest.raises(KilledError):
        Installation(root, KilledServices("systemctl"), print).install(spec, 1, 0)
    with pytest.raises(JoinError, match="everything is as it was"):
        installation(root, systemctl="/no/such/systemctl").install(spec, 1, 0)
    assert files(root) == before


def test_an_unwritable_file_undoes_the_earlier_changes(root: Path, spec: InstallSpec) -> None:
    (root / "etc/systemd/system/.edgehub.service.edgehub-new").mkdir(parents=True)
    before = files(root)
    with pytest.raises(JoinError, match="everything is as it was"):
        installation(root).install(spec, 1, 0)
    assert files(root) == before


def test_a_kubeconfig_that_is_a_symbolic_link_stays_a_link(root: Path, spec: InstallSpec) -> None:
    kubelet = root / KUBELET[1:]
    kubelet.rename(elsewhere := root / "etc/kubelet.conf")
    kubelet.symlink_to("../kubelet.conf")
    before = files(root)
    installation(root).install(spec, 1, 0)
    assert load_kubeconfig(elsewhere).cluster.server == spec.hub.plain_url
    installation(root).uninstall()
    assert kubelet.is_symlink()
    assert files(root) == before


def test_the_hub_stays_installed_while_kubelets_kubeconfig_cannot_be_restored(
    root: Path, spec: InstallSpec
) -> None:
    before = files(root)
    installation(root).install(spec, 1, 0)
    (obstacle := root / "etc/kubernetes/.kubelet.conf.edgehub-new").mkdir()
    with pytest.raises(JoinError, match=r"kubelet\.conf cannot be restored: .*the hub runs on until then"):
        installation(root).uninstall()
    assert load_kubeconfig(root / KUBELET[1:]).cluster.server == spec.hub.plain_url
    assert (root / "etc/systemd/system/edgehub.service").exists()
    obstacle.rmdir()
    installation(root).uninstall()
    assert files(root) == before


def test_the_printed_diff_equals_the_written_changes(root: Path, spec: InstallSpec) -> None:
    def patched(before: list[str], hunks: list[str]) -> list[str]:
        """Return the lines of a file after applying a unified diff, whose context hides secrets."""
        after, taken = list[str](), 0
        for line in hunks:
            if line.startswith("@@"):
                start = max(0, int(line.split()[1].split(",")[0][1:]) - 1)
                after += before[taken:start]
                taken = start
                continue
            if line[0] in " +":
                after.append(line[1:])
            taken += line[0] in " -"
        return after + before[taken:]

    installation(root, said := list[str]()).show(spec)
    shown = {text.splitlines()[1].split()[1]: text.splitlines()[2:] for text in said}
    before = files(root)
    installation(root).install(spec, 1, 0)
    after = {
        name: data for name, data in files(root).items() if not name.startswith("var/lib/edgehub-install")
    }
    assert {f"/{name}" for name, data in after.items() if before.get(name) != data} == set(shown)
    for path, hunks in shown.items():
        patched_lines = patched(before.get(path[1:], b"").decode().splitlines(), hunks)
        hidden = [line.replace("secret", "(not shown)") for line in patched_lines]
        assert hidden == after[path[1:]].decode().replace("secret", "(not shown)").splitlines(), path


def test_an_upgrade_replaces_the_program(root: Path, spec: InstallSpec) -> None:
    with pytest.raises(JoinError, match="no hub is installed here"):
        installation(root).upgrade("/other", "", 1, 0)
    installation(root).install(spec, 1, 0)
    installation(root).upgrade("/other", "", 1, 0)
    assert "ExecStart=/other " in (root / "etc/systemd/system/edgehub.service").read_text()


def test_a_static_pod_is_replaced_in_place_if_only_its_image_differs(root: Path, spec: InstallSpec) -> None:
    """kubelet changes the image of a running pod at once; for any other change it ends the pod before it starts the
    next one."""

    def end_pod(image: str = "hub:1", flags: Sequence[str] = spec.flags) -> bool:
        """Record whether the manifest is removed before the new one is written."""
        changed = dataclasses.replace(pod, image=image, flags=tuple(flags))
        (manifest,) = (each for each in changed.hub_changes(ledger) if each.path == pod.hub_file)
        HubService(ledger, Services(""), print).end_pod(pod, manifest.data)
        is_gone = ledger.present(pod.hub_file) is None
        installation(root).install(pod, 1, 0)
        return is_gone

    pod = dataclasses.replace(spec, method="static-pod", image="hub:1")
    installation(root).install(pod, 1, 0)
    ledger = Ledger(root, LEDGER)
    assert not end_pod()
    assert not end_pod("hub:2")
    assert end_pod(flags=[*spec.flags, "--pool", "hz"])


def test_containers_that_kubelet_has_forgotten_are_ended_before_the_next_pod(
    root: Path, spec: InstallSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen where a manifest goes in the second in which kubelet starts: kubelet unmounts the pod's volumes alone."""
    monkeypatch.setattr("addons.install.hub_service.LIMIT_OF_STATIC_POD", 0.0)
    pod = dataclasses.replace(spec, method="static-pod", image="hub:1")
    installation(root).install(pod, 1, 0)
    uid = "8b4338c48aa3b04cb59fe332c157e3ff"
    (root / f"var/log/pods/kube-system_edgehub-n1_{uid}").mkdir(parents=True)
    (root / f"var/lib/kubelet/pods/{uid}").mkdir(parents=True)
    with subprocess.Popen(["sleep", "600"]) as forgotten:
        processes = {"1": ("/init.scope", 0), str(forgotten.pid): (f"/kubepods/pod{uid}/1", 1)}
        for pid, (cgroup, parent) in processes.items():
            (root / "proc" / pid).mkdir(parents=True)
            (root / "proc" / pid / "cgroup").write_text(f"0::{cgroup}\n")
            (root / "proc" / pid / "stat").write_text(f"{pid} (name) S {parent} 1 1 0\n")
        HubService(Ledger(root, LEDGER), Services(""), print).end_pod(pod, b"another")
        code = forgotten.poll()
        forgotten.kill()
    assert code == -signal.SIGTERM


def test_an_upgrade_of_a_static_pod_changes_its_image_or_restores_it(root: Path, spec: InstallSpec) -> None:
    """If the new hub fails, the previous image is restored and the error comes from the wait for the previous hub."""
    manifest = root / "etc/kubernetes/manifests/edgehub.yaml"
    state = root / "var/lib/edgehub"
    state.mkdir(parents=True)
    installation(root).install(dataclasses.replace(spec, method="static-pod", image="hub:1"), 1, 0)
    before = manifest.read_bytes()
    with pytest.raises(JoinError, match="name its new image by --static-pod"):
        installation(root).upgrade("/other", "", 1, 0)
    # No kubelet runs here, so no hub answers.
    with pytest.raises(JoinError, match="the previous hub is back"):
        installation(root, systemctl="/no/such/systemctl").upgrade("", "hub:2", 0.1, 0)
    assert manifest.read_bytes() == before
    assert read_rollback(state).startswith("hub:2: the hub does not answer at ")
    recorded, restored = (path.stat().st_mtime_ns for path in (state / "rolled-back", manifest))
    assert recorded <= restored, "the previous hub reads the record when it starts"
    installation(root).upgrade("", "hub:2", 1, 0)
    assert manifest.read_bytes() == before.replace(b'"hub:1"', b'"hub:2"')
    assert read_rollback(state) == ""
