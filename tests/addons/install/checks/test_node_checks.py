"""The doctor's checks of the node: its distribution, certificates before and after expiry, disks, ports, addresses."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from addons.install.checks import node_checks
from addons.install.checks.findings import Severity
from addons.install.checks.node_checks import (
    Program,
    check_address,
    check_asked,
    check_certificate,
    check_disk,
    check_distribution,
    check_ports,
    check_program,
    check_state_certificates,
)
from addons.install.install_spec import KUBELET_KUBECONFIG
from kube.http.kubeconfig import Credentials, DataOrFile, User
from tests.cloud.pki import Authority

DAY = timedelta(days=1)


def test_a_program_in_a_home_folder_is_refused_for_the_unit(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (program := home / "bin" / "edgehub").touch()
    (link := tmp_path / "edgehub").symlink_to(program)
    closed = 0o604 if os.geteuid() == 0 else 0o704  # the user of the tests needs access
    for each, mode in ((program, 0o755), (program.parent, 0o755), (home, closed)):
        each.chmod(mode)
    found = check_program(Program(Path("/"), str(link)))
    assert found.severity is Severity.WARNING
    assert found.text.startswith(f"{home} is not open to root")
    assert check_program(Program(Path("/"), "/bin/sh")).severity is Severity.OK


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        ("#!/opt/edgehub/bin/python3", ""),
        ("#!/usr/bin/env python3", "/usr/bin/env is not there"),
        ("", "/opt/edgehub/bin/edgehub is not there"),
    ],
)
def test_the_program_of_an_image_is_checked_below_its_root(tmp_path: Path, script: str, missing: str) -> None:
    """The running program and its interpreter belong to this machine, not to the image."""
    (folder := tmp_path / "opt/edgehub/bin").mkdir(parents=True)
    (folder / "python3").touch(mode=0o755)
    if script:
        (folder / "edgehub").write_text(f"{script}\n")
        (folder / "edgehub").chmod(0o755)
    tmp_path.chmod(0o755)
    found = check_program(Program(tmp_path, "/opt/edgehub/bin/edgehub"))
    assert (found.severity is Severity.FAILED) is bool(missing)
    later = check_program(Program(tmp_path, "/opt/edgehub/bin/edgehub", is_needed=False))
    assert (later.severity is Severity.WARNING) is bool(missing), "an image that a doctor looks at first"
    assert found.text.startswith(missing)


@pytest.mark.parametrize(
    ("later", "severity", "message"),
    [
        (0 * DAY, Severity.OK, "until"),
        (9.5 * DAY, Severity.WARNING, "kubelet should have renewed it"),
        (11 * DAY, Severity.FAILED, "ended at"),
        (-1 * DAY, Severity.FAILED, "is the clock of this node right"),
    ],
)
def test_certificates_are_reported_before_and_after_expiry(
    tmp_path: Path, later: timedelta, severity: Severity, message: str
) -> None:
    issued = Authority().issue_node("n1", 10 * DAY)
    now = datetime.now(UTC) + later
    (file := tmp_path / "kubelet-client-current.pem").write_bytes(issued.certificate + issued.key)
    pieces = DataOrFile(path=file), DataOrFile(path=file)
    (found,) = check_certificate(Credentials(user=User(*pieces)), now)
    assert found.severity is severity
    assert message in found.text
    assert "system:node:n1" in found.text


def test_a_certificate_embedded_in_the_kubeconfig_is_reported_as_not_renewed() -> None:
    issued = Authority().issue_node("n1", 10 * DAY)
    within = Credentials(user=User(DataOrFile(issued.certificate), DataOrFile(issued.key)))
    (found,) = check_certificate(within, datetime.now(UTC))
    assert found.severity is Severity.WARNING
    assert "/var/lib/kubelet/pki/kubelet-client-current.pem" in found.text
    (of_hub,) = check_certificate(within, datetime.now(UTC), "the hub")
    assert of_hub.severity is Severity.OK


def test_an_expired_certificate_is_reported_with_the_one_that_should_have_renewed_it() -> None:
    issued = Authority().issue_node("n1", 10 * DAY)
    own = Credentials(user=User(DataOrFile(issued.certificate), DataOrFile(issued.key)))
    late, ended = (
        next(check_certificate(own, datetime.now(UTC) + days * DAY, "the hub")).text for days in (9.5, 11)
    )
    assert "the hub should have renewed it" in late
    assert "with its bootstrap token" in ended


def test_certificates_in_the_state_folder_are_reported(tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    pki.mkdir()
    (pki / "serving.crt").write_bytes(Authority().issue_server("n1", ["127.0.0.1"]).certificate)
    ended = Authority().issue_node("n1", timedelta(seconds=-1))
    (pki / "cluster.pem").write_bytes(ended.certificate + ended.key)
    (pki / "peer.pem").write_text("nonsense")
    lines = [str(each) for each in check_state_certificates(tmp_path, datetime.now(UTC))]
    assert [line.split()[0] for line in lines] == ["ok", "warning", "warning"]
    assert "of the TLS port, by the cluster, ended at" in lines[1]
    assert not list(check_state_certificates(tmp_path / "none", datetime.now(UTC)))


def test_unsigned_certificates_are_reported_by_their_purpose(tmp_path: Path) -> None:
    def found(*, identity: bool, serving: bool) -> list[str]:
        asked = check_asked(tmp_path, asks_for_identity=identity, asks_for_serving=serving)
        return [each.text.partition(":")[0] for each in asked if each.severity is Severity.WARNING]

    assert found(identity=True, serving=True) == ["of this node", "of the TLS port, by the cluster"]
    assert found(identity=False, serving=False) == []
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "node.pem").touch()
    assert found(identity=True, serving=True) == ["of the TLS port, by the cluster"]


@pytest.mark.parametrize(
    ("certificate", "token", "severity"),
    [(b"garbage", b"", Severity.FAILED), (b"", b"", Severity.FAILED), (b"", b"token", Severity.OK)],
)
def test_credentials_without_a_certificate_are_rated_by_their_kind(
    certificate: bytes, token: bytes, severity: Severity
) -> None:
    pieces = DataOrFile(certificate), DataOrFile(b"")
    (found,) = check_certificate(Credentials(user=User(*pieces, DataOrFile(token))), datetime.now(UTC))
    assert found.severity is severity


def test_a_disk_without_enough_free_space_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_disk(tmp_path / "not/yet/there").severity is Severity.OK
    monkeypatch.setattr(node_checks, "MIN_FREE_DISK", 2**70)
    assert check_disk(tmp_path).severity is Severity.WARNING


def test_a_port_in_use_fails_unless_the_hub_or_systemd_uses_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (failed,) = check_ports("127.0.0.1", {"--port": port, "--tls-port": 0}, is_running=False)
        (held,) = check_ports("127.0.0.1", {"--port": port}, is_running=True)
        (systemds,) = check_ports("127.0.0.1", {"--port": port}, False, {port})
    assert systemds.severity is Severity.OK
    (free,) = check_ports("127.0.0.1", {"--port": port}, is_running=False)
    assert [each.severity for each in (failed, held, free)] == [Severity.FAILED, Severity.OK, Severity.OK]
    assert "choose another one by --port" in failed.text


def test_missing_and_loopback_pod_addresses_are_reported() -> None:
    missing, loopback = check_address(("192.0.2.1", "127.0.0.1"))
    assert (missing.severity, loopback.severity) == (Severity.FAILED, Severity.WARNING)
    assert "ip addr add 192.0.2.1/32 dev lo" in missing.text


K3S = "var/lib/rancher/k3s/agent/kubelet.kubeconfig"


def write_files(root: Path, *files: str, text: str = "") -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)


def distribution_findings(root: Path, kubelet: Path = KUBELET_KUBECONFIG) -> str:
    return "\n".join(map(str, check_distribution(root, kubelet, KUBELET_KUBECONFIG)))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (K3S, "warning  distribution k3s: its agent writes kubelet's kubeconfig anew"),
        ("var/lib/rancher/rke2/agent/kubelet.kubeconfig", "--kubelet-service rke2-agent.service"),
        ("var/snap/microk8s/current/credentials/kubelet.config", "snap.microk8s.daemon-kubelite.service"),
        ("var/lib/k0s/kubelet.conf", "--kubelet-service k0sworker.service"),
    ],
)
def test_each_distribution_is_recognized_by_kubelets_kubeconfig(
    tmp_path: Path, file: str, message: str
) -> None:
    write_files(tmp_path, file)
    assert message in distribution_findings(tmp_path)
    assert "failed" not in distribution_findings(tmp_path)


def test_the_check_proposes_no_kubeconfig_once_one_is_named(tmp_path: Path) -> None:
    write_files(tmp_path, K3S)
    copy = Path("/etc/rancher/k3s/edgehub-kubelet.kubeconfig")
    assert (
        distribution_findings(tmp_path, copy)
        == f"ok       distribution k3s, with kubelet's kubeconfig at {copy}"
    )


def test_an_installation_on_talos_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, "etc/os-release", text='NAME="Talos"\nID=talos\n')
    assert distribution_findings(tmp_path).startswith("failed   distribution Talos")


def test_a_kubeadm_node_has_no_finding_about_its_distribution(tmp_path: Path) -> None:
    write_files(tmp_path, "etc/os-release", text="ID=debian\n")
    write_files(tmp_path, "etc/kubernetes/kubelet.conf", K3S)
    assert distribution_findings(tmp_path) == ""
