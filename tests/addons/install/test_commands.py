"""The subcommands as an operator types them, below a root without running services."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from addons.install.commands import run
from addons.install.install_spec import InstallSpec
from addons.install.installation import Installation
from addons.install.services.system_services import Services
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority
from tests.cloud.ports import free_port

KUBELET = "etc/kubernetes/kubelet.conf"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc/kubernetes").mkdir(parents=True)
    issued = Authority().issue_node("edge-7")
    write_kubeconfig(tmp_path / KUBELET, "http://127.0.0.1:1", credential=issued)
    (tmp_path / "usr/local/bin").mkdir(parents=True)
    (tmp_path / "usr/local/bin/edgehub").touch(mode=0o755)
    tmp_path.chmod(0o755)
    return tmp_path


def test_a_dry_run_shows_each_file_and_changes_none(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (root / KUBELET).read_bytes()
    assert run(["install", "--root", str(root), "--dry-run", "--pool", "p1", "--", "--port", "7"]) == 0
    said = capsys.readouterr().out
    assert "--node edge-7 --pod-address auto --tls-signer cluster --pool p1 --port 7\n" in said, (
        "the name in the certificate"
    )
    assert "+    server: http://127.0.0.1:7\n" in said
    assert "+ExecStart=/usr/local/bin/edgehub " in said, "that of the image, and not the one that runs this"
    assert "+    client-key-data: (not shown)\n" in said
    assert (root / KUBELET).read_bytes() == before
    assert list(root.rglob("*.service")) == []


def test_a_static_pod_replaces_the_unit(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["install", "--root", str(root), "--dry-run", "--static-pod", "edgehub:1", "--node", "n1"]) == 0
    )
    said = capsys.readouterr().out
    assert "+++ /etc/kubernetes/manifests/edgehub.yaml" in said
    assert "edgehub.service" not in said


def test_an_installation_does_not_begin_after_a_finding_of_the_doctor(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(["install", "--root", str(root), "--", "--tls-port", "0", "--port", "0", "--admin-port", "0"])
        == 1
    )
    captured = capsys.readouterr()
    assert "failed   cloud" in captured.out
    assert "ok " not in captured.out
    assert "nothing was changed" in captured.err


def test_the_doctor_reports_each_check(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["doctor", "--root", str(root), "--", "--tls-port", "0", "--port", "0", "--admin-port", "0"]) == 1
    )
    said = capsys.readouterr().out
    assert "ok       program      edgehub " in said
    assert "failed   cloud        http://127.0.0.1:1 cannot be reached" in said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--token", "abcdef.0123456789abcdef"], "needs all of --server https://…, --token and --ca-hash"),
        (["--server", "http://c", "--token", "a", "--ca-hash", "b"], "needs all of --server https://"),
        (["--server", "https://c", "--token", "a", "--ca-hash", "b"], "--token is of the form"),
        (["--bootstrap-kubeconfig", "/x", "--token", "a"], "takes the place of"),
        (
            ["--kubeconfig", "/x", "--token", "a"],
            "give either the node's identity (--kubeconfig) or a bootstrap token",
        ),
    ],
)
def test_an_incomplete_set_of_bootstrap_flags_is_refused(
    root: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    assert run(["install", "--root", str(root), "--dry-run", *flags]) == 1
    assert message in capsys.readouterr().err


def test_a_bootstrap_kubeconfig_may_name_files_beside_it(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token.conf"
    cluster = {"server": "https://cloud:6443", "certificate-authority": "ca.crt"}
    document = {"clusters": [{"name": "c", "cluster": cluster}]}
    token.write_text(yaml.safe_dump(document))
    given = ["--bootstrap-kubeconfig", str(token), "--node", "n9"]
    assert run(["install", "--root", str(root), "--dry-run", *given]) == 0
    assert f"certificate-authority: {tmp_path}/ca.crt" in capsys.readouterr().out


def test_the_doctor_checks_the_installed_hub(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--port", str(free_port()), "--tls-port", "0", "--admin-port", str(free_port()))
    kubelet = f"/{KUBELET}"
    spec = InstallSpec("edge-9", "systemd", "/usr/bin/edgehub", "", flags, kubelet, kubelet, ())
    Installation(root, Services(""), print).install(spec, 1, 0)
    assert run(["doctor", "--root", str(root)]) == 1
    said = capsys.readouterr().out
    assert f"127.0.0.1:{flags[-1]} (--admin-port) is free" in said
    assert ":10261" not in said
    assert "169.254.2.1: the hub gives itself the address" in said


def test_the_doctor_checks_the_program_at_the_path_in_the_unit(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubelet = f"/{KUBELET}"
    spec = InstallSpec("edge-9", "systemd", "/bin/sh", "", (), kubelet, kubelet, ())
    Installation(root, Services(""), print).install(spec, 1, 0)
    run(["doctor", "--root", str(root)])
    assert f"failed   program      /bin/sh is not there below {root}" in capsys.readouterr().out
    run(["doctor", "--root", str(root), "--systemctl", "/bin/true"])
    assert "ok       program      edgehub " in capsys.readouterr().out


def test_a_second_installation_by_a_token_needs_no_token_and_changes_nothing(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / KUBELET).unlink()
    token = write_kubeconfig(tmp_path / "token.conf", "https://cloud:6443", token="abcdef.0123456789abcdef")
    text, kubelet = token.read_text(), f"/{KUBELET}"
    spec = InstallSpec("n9", "systemd", "/usr/bin/edgehub", "", (), "", kubelet, (), text)
    Installation(root, Services(""), print).install(spec, 1, 0)
    capsys.readouterr()
    assert run(["install", "--root", str(root), "--dry-run", "--program", "/usr/bin/edgehub"]) == 0
    assert capsys.readouterr().out == "every file is up to date\n"
    assert "0123456789abcdef" not in (root / "var/lib/edgehub-install/ledger.json").read_text()
    assert run(["uninstall", "--root", str(root)]) == 0
    assert {path.name for path in root.rglob("*") if path.is_file()} == {"token.conf", "edgehub"}


def test_uninstall_and_upgrade_report_a_missing_installation(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["uninstall", "--root", str(root)]) == 0
    assert run(["upgrade", "--root", str(root)]) == 1
    captured = capsys.readouterr()
    assert captured.out == "no hub is installed here\n"
    assert captured.err == "edgehub upgrade: no hub is installed here\n"


def test_an_install_without_the_kubeconfig_of_kubelet_is_refused(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / KUBELET).unlink()
    assert run(["install", "--root", str(root), "--dry-run"]) == 1
    said = capsys.readouterr().err
    assert (
        "edgehub install: /etc/kubernetes/kubelet.conf is not there: name the kubeconfig of kubelet" in said
    )


@pytest.mark.parametrize(
    ("sign", "message"),
    [
        ("var/lib/rancher/k3s/agent/kubelet.kubeconfig", "k3s: its agent writes kubelet's kubeconfig anew"),
        ("var/lib/rancher/rke2/agent/kubelet.kubeconfig", "RKE2: its agent writes kubelet's kubeconfig anew"),
        (
            "var/snap/microk8s/current/credentials/kubelet.config",
            "MicroK8s: install with --kubelet-kubeconfig",
        ),
        ("var/lib/k0s/kubelet.conf", "k0s: install with --kubelet-kubeconfig /var/lib/k0s/kubelet.conf"),
        ("etc/os-release", "Talos keeps kubelet's files to itself"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_install_reports_the_distribution_like_the_doctor(
    root: Path, capsys: pytest.CaptureFixture[str], sign: str, message: str, dry: tuple[str, ...]
) -> None:
    (root / KUBELET).unlink()
    (root / sign).parent.mkdir(parents=True, exist_ok=True)
    (root / sign).write_text("ID=talos\n")
    assert run(["install", "--root", str(root), *dry]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"edgehub install: {message}")


def test_a_relative_kubeconfig_is_resolved_in_the_working_folder(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root / "etc")
    off = ("--", "--tls-port", "0", "--port", "0", "--admin-port", "0", "--state-dir", "state")
    assert run(["doctor", "--kubeconfig", "kubernetes/kubelet.conf", *off]) == 1
    said = capsys.readouterr().out
    assert f"ok       kubeconfig   {root}/{KUBELET}: http://127.0.0.1:1" in said
    assert f"ok       disk         {root}/etc/state: " in said


def test_a_relative_path_in_the_hubs_flags_is_refused_for_a_unit(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(["install", "--root", str(root), "--dry-run", "--", "--peer-cert", "a.pem", "--peer-key", "/k"])
        == 1
    )
    assert "after --: a.pem: give the absolute path" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["--port", "--admin-port"])
def test_an_install_without_a_port_that_it_needs_is_refused(
    root: Path, capsys: pytest.CaptureFixture[str], port: str
) -> None:
    """The installation would wait in vain for kubelet or for the hub, and the sockets would outlive their hub."""
    assert run(["install", "--root", str(root), "--dry-run", "--", port, "0"]) == 1
    assert "after --: an installed hub needs --port and --admin-port" in capsys.readouterr().err


def test_the_doctor_reports_a_missing_certificate_authority(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load((root / KUBELET).read_text())
    document["clusters"][0]["cluster"] |= {
        "server": "https://127.0.0.1:1",
        "certificate-authority": "pki/ca.crt",
    }
    (root / KUBELET).write_text(yaml.safe_dump(document))
    off = ("--", "--tls-port", "0", "--port", "0", "--admin-port", "0")
    assert run(["doctor", "--root", str(root), *off]) == 1
    missing = f"No such file or directory: '{root}/etc/kubernetes/pki/ca.crt'"
    assert f"certificate-authority of the kubeconfig: {missing}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["install", "--nonsense"], ["install", "--systemd", "--static-pod", "i"]]
)
def test_bad_flags_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2
