"""The doctor checks the node first, and stops at an unusable kubeconfig."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from addons.install.doctor import examine
from addons.install.install_spec import BOOTSTRAP_KUBECONFIG
from addons.settings import Settings
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority
from tests.cloud.ports import free_port

FILE = Path("/kubelet.conf")


@pytest.fixture
def hub(tmp_path: Path) -> Settings:
    return Settings(port=free_port(), tls_port=0, admin_port=free_port(), state_dir=tmp_path / "state")


def last_finding(root: Path, hub: Settings) -> str:
    return [str(each) for each in examine(root, FILE, "n1", hub)][-1]


def test_the_node_is_checked_without_a_kubeconfig(tmp_path: Path, hub: Settings) -> None:
    lines = [str(each) for each in examine(tmp_path, FILE, "n1", hub)]
    assert [line.split()[:2] for line in lines] == [
        ["ok", "program"],
        ["ok", "ports"],
        ["ok", "ports"],
        ["ok", "disk"],
        ["failed", "kubeconfig"],
    ]


@pytest.mark.parametrize(
    ("host", "listen"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("[::1]", "::1")]
)
def test_a_kubeconfig_that_points_at_the_hub_itself_is_reported(
    tmp_path: Path, hub: Settings, host: str, listen: str
) -> None:
    hub = replace(hub, listen=listen)
    write_kubeconfig(tmp_path / "kubelet.conf", f"http://{host}:{hub.port}")
    assert "leads to the hub itself" in last_finding(tmp_path, hub)


def test_a_users_exec_plugin_is_not_a_nodes_credential(tmp_path: Path, hub: Settings) -> None:
    path = write_kubeconfig(tmp_path / "kubelet.conf", "https://127.0.0.1:1", token="x")
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/aws"}
    document = yaml.safe_load(path.read_text())
    document["users"][0]["user"] = {"exec": plugin}
    path.write_text(yaml.safe_dump(document))
    assert "has an exec plugin (/bin/aws), so it is no node's" in last_finding(tmp_path, hub)


def test_files_named_in_a_kubeconfig_are_read_below_the_root(tmp_path: Path, hub: Settings) -> None:
    """kubelet's link to its newest certificate is absolute; outside the root it would lead to another node's."""
    issued = Authority().issue_node("n1", timedelta(seconds=-1))
    pki = tmp_path / "var/lib/kubelet/pki"
    pki.mkdir(parents=True)
    (pki / "newest.pem").write_bytes(issued.certificate + issued.key)
    (pki / "current.pem").symlink_to("/var/lib/kubelet/pki/newest.pem")
    path = write_kubeconfig(tmp_path / "kubelet.conf", "https://127.0.0.1:1", token="x")
    document = yaml.safe_load(path.read_text())
    current = "/var/lib/kubelet/pki/current.pem"
    document["users"][0]["user"] = {"client-certificate": current, "client-key": current}
    path.write_text(yaml.safe_dump(document))
    assert (last_finding(tmp_path, hub)).startswith("failed   certificate  CN=system:node:n1")


def test_an_expired_identity_is_reported_and_the_cloud_is_not_called(tmp_path: Path, hub: Settings) -> None:
    ended = Authority().issue_node("n1", timedelta(seconds=-1))
    write_kubeconfig(tmp_path / "kubelet.conf", "https://127.0.0.1:1", credential=ended)
    assert (last_finding(tmp_path, hub)).startswith("failed   certificate  CN=system:node:n1")


def test_the_identity_that_a_hub_requested_is_checked(tmp_path: Path, hub: Settings) -> None:
    bootstrap = tmp_path / BOOTSTRAP_KUBECONFIG.relative_to("/")
    bootstrap.parent.mkdir(parents=True)
    write_kubeconfig(bootstrap, "http://127.0.0.1:1", token="abcdef.0123456789abcdef")
    pki = tmp_path / hub.state_dir.relative_to("/") / "pki"
    pki.mkdir(parents=True)
    issued = Authority().issue_node("n1")
    (pki / "node.pem").write_bytes(issued.certificate + issued.key)
    lines = [str(each) for each in examine(tmp_path, BOOTSTRAP_KUBECONFIG, "n1", hub)]
    assert any(line.startswith("ok       certificate  CN=system:node:n1") for line in lines), lines


def test_the_token_is_checked_before_the_hub_has_an_identity(tmp_path: Path, hub: Settings) -> None:
    path = write_kubeconfig(tmp_path / "token", "http://127.0.0.1:1", token="abcdef.0123456789abcdef")
    lines = [str(each) for each in examine(tmp_path, BOOTSTRAP_KUBECONFIG, "n1", hub, path.read_text())]
    assert "ok       certificate  the kubeconfig has a token and no client certificate" in lines
    assert lines[-1].startswith("failed   cloud        http://127.0.0.1:1 cannot be reached")


def test_the_hubs_filter_files_are_checked(tmp_path: Path) -> None:
    hub = Settings(port=free_port(), tls_port=0, admin_port=0, filter_modules=(Path("/etc/edgehub/acme.py"),))
    lines = [str(each) for each in examine(tmp_path, FILE, "n1", hub)]
    assert f"failed   filters      {tmp_path}/etc/edgehub/acme.py cannot be read" in "\n".join(lines)
