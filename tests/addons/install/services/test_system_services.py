"""Units, static pods, and the commands that manage them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from addons.install.services.system_services import (
    ServiceError,
    Services,
    guard_pod,
    socket_unit,
    static_pod,
    uid_of,
    unit,
)


def systemctl(folder: Path, status: int = 0) -> str:
    program = folder / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$@" >>{folder}/calls\necho "no such unit" >&2\nexit {status}\n')
    program.chmod(0o755)
    return str(program)


def test_each_step_calls_systemctl(tmp_path: Path) -> None:
    services = Services(systemctl(tmp_path))
    services.start_hub(opens_anew=True)
    services.start_hub()
    services.restart_clients()
    services.stop_hub()
    services.reload()
    assert (tmp_path / "calls").read_text().splitlines() == [
        "daemon-reload",
        "enable edgehub.socket edgehub.service",
        "stop edgehub.service",
        "restart edgehub.socket",
        "start --no-block edgehub.service",
        "daemon-reload",
        "enable edgehub.socket edgehub.service",
        "stop edgehub.service",
        "start --no-block edgehub.service",
        "restart kubelet.service",
        "is-active --quiet kube-proxy.service",
        "restart kube-proxy.service",
        "disable --now edgehub.socket edgehub.service",
        "daemon-reload",
    ]


def test_the_last_output_of_systemctl_is_the_error(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="daemon-reload: no such unit"):
        Services(systemctl(tmp_path, 1)).reload()
    with pytest.raises(ServiceError, match="No such file"):
        Services(str(tmp_path / "nowhere")).reload()


def test_nothing_is_called_without_systemctl() -> None:
    services = Services("")
    assert not services.can_be_called
    services.start_hub()


@pytest.fixture
def systemd_analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("this machine has no systemd-analyze")
    return found


@pytest.fixture
def unit_file(tmp_path: Path) -> Path:
    path = tmp_path / "edgehub.service"
    path.write_text(unit([sys.executable, "--node", "a b", "100%", "$HOME", ""]))
    return path


@pytest.mark.parametrize(
    ("makes_address", "given", "added"), [(True, "CAP_NET_ADMIN", ["NET_ADMIN"]), (False, "", None)]
)
def test_a_hub_that_makes_the_address_for_pods_may_change_the_network(
    makes_address: bool, given: str, added: list[str] | None
) -> None:
    assert f"CapabilityBoundingSet={given}\n" in unit(["edgehub"], makes_address=makes_address)
    pod = json.loads(static_pod("edgehub:1", [], "/k", ("127.0.0.1", 1), makes_address=makes_address))
    assert pod["spec"]["containers"][0]["securityContext"]["capabilities"].get("add") == added


def test_systemd_accepts_the_sockets_and_the_unit_that_needs_them(
    systemd_analyze: str, tmp_path: Path
) -> None:
    service, sockets = tmp_path / "edgehub.service", tmp_path / "edgehub.socket"
    service.write_text(unit([sys.executable]))
    sockets.write_text(socket_unit([("127.0.0.1", 10261), ("fd00::9:1", 10268)]))
    assert "ListenStream=127.0.0.1:10261\nListenStream=[fd00::9:1]:10268\n" in sockets.read_text()
    done = subprocess.run(
        [systemd_analyze, "verify", "--man=no", sockets, service], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "edgehub." not in done.stderr, done.stderr


def test_systemds_security_analysis_rates_the_unit_ok(systemd_analyze: str, unit_file: Path) -> None:
    # The exposure from `systemd-analyze security`, in tenths of 10: it rates 2.9 and below OK.
    exposure = 30
    asked = [
        systemd_analyze,
        "security",
        "--offline=true",
        f"--threshold={exposure}",
        "--no-pager",
        str(unit_file),
    ]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_arguments_are_escaped_for_the_unit(unit_file: Path) -> None:
    assert f'ExecStart={sys.executable} --node "a b" 100%% $$HOME ""\n' in unit_file.read_text()


BREAK = "n1\nExecStartPre=/bin/sh"


@pytest.mark.parametrize("argument", [BREAK, "n1\rx", "n1\0", "n1\u2028x", "\x1b[31m"])
def test_an_argument_with_a_line_break_is_refused(argument: str) -> None:
    with pytest.raises(ValueError, match="unprintable character"):
        unit(["/edgehub", "--node", argument])


def test_an_address_with_a_line_break_is_refused_for_the_sockets() -> None:
    with pytest.raises(ValueError, match="IPv4"):
        socket_unit([(BREAK, 10261)])


def test_dollar_signs_are_escaped_in_arguments_of_the_static_pod() -> None:
    pod = json.loads(static_pod("edgehub:1", ["--node", "$(HOME)", "a$b"], "/k", ("127.0.0.1", 1)))
    assert pod["spec"]["containers"][0]["args"] == ["--node", "$$(HOME)", "a$b"]


def test_the_static_pods_uid_changes_with_anything_but_the_image() -> None:
    def manifest(
        image: str = "edgehub:1", *arguments: str, port: int = 1, folders: Sequence[str] = (), text: str = ""
    ) -> bytes:
        admin = ("127.0.0.1", port)
        return static_pod(image, arguments, "/k", admin, folders=folders, read_at_start=text).encode()

    uid = uid_of(manifest())
    assert re.fullmatch("[0-9a-f]{32}", uid)
    assert uid_of(manifest("edgehub:2")) == uid
    others = manifest("edgehub:1", "--node"), manifest(port=2), manifest(folders=["/tls"]), manifest(text="k")
    assert len({uid, *map(uid_of, others)}) == 5
    guard = guard_pod("edgehub:1", [], restarts_clients=False).encode()
    for text in (None, b"", b"kind: Pod", b"[]", b'{"metadata": []}', guard):
        assert uid_of(text) == ""


def test_the_static_pod_mounts_the_files_of_the_hub() -> None:
    admin, folders = ("127.0.0.1", 10267), ["/etc/edgehub", "/opt/acme"]
    pod = json.loads(
        static_pod("edgehub:1", ["--node", "n1"], "/etc/kubernetes/edgehub.conf", admin, folders=folders)
    )
    (container,) = pod["spec"]["containers"]
    assert (container["image"], container["args"]) == ("edgehub:1", ["--node", "n1"])
    volumes = {
        each["name"]: each["hostPath"]["path"] for each in pod["spec"]["volumes"] if "hostPath" in each
    }
    mounts = {each["name"]: (each["mountPath"], each.get("readOnly")) for each in container["volumeMounts"]}
    # Python's tempfile, which passes keys to TLS, needs this folder where the root is read-only.
    assert mounts.pop("tmp") == ("/tmp", None)  # noqa: S108 - a pod's own
    assert {*folders} < {*volumes.values()}
    assert mounts == {name: (path, name != "state") for name, path in volumes.items()}
    assert pod["spec"]["hostNetwork"] is True


@pytest.mark.parametrize(
    ("state", "of_running", "said"),
    [
        ("auto-restart\nJob=7", False, "k.service has ended, and its last lines are:\nno such file"),
        ("failed", False, "k.service has ended, and its last lines are:\nno such file"),
        ("running", False, ""),
        ("dead\nJob=7", False, ""),
        ("failed\nJob=7", False, ""),
        ("failed\nJob=0", False, "k.service has ended, and its last lines are:\nno such file"),
        ("running", True, "k.service runs, and its last lines are:\nno such file"),
        ("", True, ""),
    ],
)
def test_the_last_log_lines_of_an_ended_service_are_reported(
    tmp_path: Path, state: str, of_running: bool, said: str
) -> None:
    systemctl = tmp_path / "systemctl"
    printed = 'printf "k.service\\n  Active\\n\\nno such file\\n"'
    systemctl.write_text(f'#!/bin/sh\ncase $1 in show) echo "SubState={state}" ;; *) {printed} ;; esac\n')
    systemctl.chmod(0o755)
    assert Services(str(systemctl)).last_lines("k.service", of_running=of_running) == said
    # systemctl knows only the lines since the last restart was scheduled.
    journalctl = tmp_path / "journalctl"
    journalctl.write_text('#!/bin/sh\necho "$@"\n')
    journalctl.chmod(0o755)
    lines = "--quiet --lines=8 --unit=k.service"
    found = Services(f"env {systemctl}").last_lines("k.service", of_running=of_running)
    assert found == said.replace("no such file", lines)
