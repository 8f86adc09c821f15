"""Containers that use the hub's address, found by their processes and ended as kubelet would."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from addons.install.services.pod_processes import (
    Container,
    containers_at,
    containers_of,
    end,
    has_pod,
    last_lines,
    logs_of,
)

UID, OTHER = "0d0fd4b3-5a0a-4c9e-9a1c-0a3f8f4e6b11", "7c3d4a7b-1f2e-4d5c-8b9a-0f1e2d3c4b5a"
ADDRESS = "169.254.2.1"


def test_a_container_is_found_by_the_address_in_its_environment(tmp_path: Path) -> None:
    def process(root: Path, pid: int, parent: int, cgroup: str, address: str | None) -> None:
        folder = root / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "stat").write_text(f"{pid} (a ) name) S {parent} 1 1 0\n")
        variables = ["PATH=/bin", *([f"KUBERNETES_SERVICE_HOST={address}"] if address else []), ""]
        (folder / "environ").write_text("\0".join(variables))

    cgroupfs = f"/kubepods/burstable/pod{OTHER}/def"
    systemd = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-abc.scope"
    static = "8f3c2b1a0d9e8f7c6b5a4d3e2f1a0b9c"
    process(tmp_path, 1, 0, "/init.scope", None)
    process(tmp_path, 10, 1, systemd, ADDRESS)
    process(tmp_path, 11, 10, systemd, ADDRESS)  # a child process of the container
    process(tmp_path, 20, 1, cgroupfs, ADDRESS)
    process(tmp_path, 30, 1, f"/kubepods/pod{static}/1", ADDRESS)
    process(tmp_path, 40, 1, cgroupfs.replace("def", "older"), "10.96.0.1")
    process(tmp_path, 50, 1, "/user.slice", ADDRESS)
    process(tmp_path, 55, 1, cgroupfs.replace("def", "job"), ADDRESS)
    (tmp_path / "proc/self").symlink_to("55")  # a Job that uninstalls the hub
    (tmp_path / "proc/60").mkdir()  # ended before it was read
    (tmp_path / f"var/log/pods/default_web_{UID}").mkdir(parents=True)
    (tmp_path / f"var/log/pods/kube-system_proxy_{static}").mkdir()
    assert containers_at([ADDRESS], tmp_path) == [
        Container(OTHER, 20),
        Container("default/web", 10),
        Container("kube-system/proxy", 30),
    ]
    assert containers_of("default/web", tmp_path) == [Container("default/web", 10)]


def test_a_node_without_pods_has_no_containers(tmp_path: Path) -> None:
    assert containers_at([ADDRESS], tmp_path) == []


def test_a_pod_exists_as_long_as_kubelet_has_its_folder(tmp_path: Path) -> None:
    (tmp_path / f"var/log/pods/kube-system_edgehub-n1_{UID}").mkdir(parents=True)
    (tmp_path / f"var/log/pods/kube-system_edgehub-n1_{OTHER}").mkdir()  # the log of an earlier container
    folder = tmp_path / "var/lib/kubelet/pods" / UID
    folder.mkdir(parents=True)
    assert has_pod("kube-system/edgehub-n1", tmp_path)
    assert not has_pod("kube-system/edgehub-n2", tmp_path)
    folder.rmdir()
    assert not has_pod("kube-system/edgehub-n1", tmp_path)


def test_the_log_of_each_container_of_a_pod_is_found_by_its_restarts(tmp_path: Path) -> None:
    folder = tmp_path / f"var/log/pods/kube-system_edgehub-n1_{UID}/edgehub"
    folder.mkdir(parents=True)
    for name in ("0.log", "0.log.20260102-120000", "1.log"):
        (folder / name).write_text(
            "".join(f"2026-01-02T12:00:00Z stderr F line {each} \n" for each in range(20))
        )
    logs = logs_of("kube-system/edgehub-n1", UID, tmp_path)
    assert logs == {0: folder / "0.log", 1: folder / "1.log"}
    assert last_lines(logs[0]).splitlines()[-2:] == ["line 18 ", "line 19 "]
    assert logs_of("kube-system/edgehub-n1", OTHER, tmp_path) == {}
    assert last_lines(folder / "2.log") == ""


@pytest.mark.parametrize(("trap", "ended_by"), [("trap 'exit 3' TERM", 3), ("trap '' TERM", -signal.SIGKILL)])
async def test_a_container_gets_sigterm_and_then_sigkill(trap: str, ended_by: int) -> None:
    running = await asyncio.create_subprocess_exec(
        "sh", "-c", f"{trap}; echo; while :; do read -r _; done", stdin=-1, stdout=-1
    )
    assert running.stdout is not None
    await running.stdout.readline()
    await asyncio.to_thread(end, [Container("default/web", running.pid)], 0.5)
    assert await running.wait() == ended_by
    end([Container("default/web", running.pid)])  # already ended
