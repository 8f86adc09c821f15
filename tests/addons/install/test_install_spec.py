"""The flags of an installation, and the files that are written for them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from addons.filters.inputs import AUTO_ADDRESS, PodAddress
from addons.install.changes import FileChange, Ledger
from addons.install.install_spec import (
    BOOTSTRAP_KUBECONFIG,
    KUBELET_BOOTSTRAP,
    LEDGER,
    OWN_KUBECONFIG,
    SOCKET_FILE,
    STATIC_POD,
    UNIT_FILE,
    InstallSpec,
    Method,
    parse_hub_flags,
    read_spec,
)
from addons.install.kubeconfigs import bootstrap_kubeconfig, server_of
from addons.install.services.system_services import KUBELET_PKI, STATE_DIR
from addons.settings import Settings
from kube.http.kubeconfig import Credentials, load_kubeconfig
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority

KUBELET = "/etc/kubernetes/kubelet.conf"
AUTHORITY = Path(STATE_DIR) / "pki/ca.crt"
WISH = InstallSpec("n1", "systemd", "/usr/bin/edgehub", "edgehub:1", ("--port", "1"), KUBELET, KUBELET, ())


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    (tmp_path / "etc/kubernetes").mkdir(parents=True)
    write_kubeconfig(tmp_path / KUBELET[1:], "https://cloud:6443")
    return Ledger(tmp_path, LEDGER)


def test_the_hub_gets_a_copy_of_the_kubeconfig_and_kubelets_points_at_the_hub(ledger: Ledger) -> None:
    own, sockets, unit = WISH.hub_changes(ledger)
    assert (own.path, own.mode, sockets.path, unit.path) == (OWN_KUBECONFIG, 0o600, SOCKET_FILE, UNIT_FILE)
    for address in ("127.0.0.1:1", "127.0.0.1:10268", "169.254.2.1:10268"):
        assert f"ListenStream={address}\n".encode() in sockets.data
    assert server_of(own.data.decode()) == "https://cloud:6443"
    assert (
        b"ExecStart=/usr/bin/edgehub --kubeconfig /etc/kubernetes/edgehub.conf --node n1 "
        b"--pod-address auto --tls-signer cluster --port 1\n" in unit.data
    )
    (kubelet,) = WISH.client_changes(ledger)
    assert server_of(kubelet.data.decode()) == "http://127.0.0.1:1"
    ledger.apply([own, sockets, unit, kubelet])
    assert WISH.hub_changes(ledger) == [own, sockets, unit], "of the original, not of what it became"


def test_a_bootstrap_token_is_written_for_the_hub_and_not_to_the_ledger(ledger: Ledger) -> None:
    spec = dataclasses.replace(WISH, identity="", bootstrap="apiVersion: v1\n")
    token, sockets, unit = spec.hub_changes(ledger)
    assert (token.path, token.mode, token.data) == (BOOTSTRAP_KUBECONFIG, 0o600, b"apiVersion: v1\n")
    assert f"--bootstrap-kubeconfig {BOOTSTRAP_KUBECONFIG} --node n1".encode() in unit.data
    later = read_spec(json.loads(json.dumps(spec.to_json())))
    assert later.hub_changes(ledger) == [sockets, unit], "a token that was put there since stays"


def files_of(tmp_path: Path, change: FileChange) -> Credentials:
    (tmp_path / "made.conf").write_bytes(change.data)
    return load_kubeconfig(tmp_path / "made.conf")


def test_a_new_nodes_kubelet_has_a_token_at_the_tls_port_alone(tmp_path: Path, ledger: Ledger) -> None:
    (tmp_path / KUBELET[1:]).unlink()
    token = bootstrap_kubeconfig("https://cloud:6443", b"PEM", "abcdef.0123456789abcdef")
    spec = dataclasses.replace(WISH, identity="", bootstrap=token)
    kubelet, bootstrap = spec.client_changes(ledger)
    plain = files_of(tmp_path, kubelet)
    assert (plain.cluster.server, plain.user.bearer, plain.user.certificate.read()) == (
        "http://127.0.0.1:1",
        "",
        b"",
    )
    tls = files_of(tmp_path, bootstrap)
    assert (tls.cluster.server, tls.user.bearer) == (
        "https://127.0.0.1:10268",
        "Bearer abcdef.0123456789abcdef",
    )
    assert (tls.cluster.authority.path, bootstrap.path) == (AUTHORITY, KUBELET_BOOTSTRAP)
    # kubelet has got its certificate, and has written its path.
    ledger.apply([kubelet, bootstrap])
    write_kubeconfig(tmp_path / KUBELET[1:], tls.cluster.server)
    assert spec.client_changes(ledger) == [], "a second installation leaves it alone"


@pytest.mark.parametrize(
    ("issuer", "flags", "server"),
    [
        ("the cluster's", (), "https://127.0.0.1:10268"),
        ("another", (), "http://127.0.0.1:1"),  # k3s has a CA for servers and one for clients
        ("the cluster's", ("--tls-port", "0"), "http://127.0.0.1:1"),
        ("the cluster's", ("--listen", "10.0.0.7"), "http://10.0.0.7:1"),
    ],
)
def test_kubelet_calls_the_tls_port_if_the_hub_can_verify_its_certificate(
    tmp_path: Path, ledger: Ledger, issuer: str, flags: tuple[str, ...], server: str
) -> None:
    authority = Authority()
    issued = (authority if issuer == "the cluster's" else Authority()).issue_node("n1")
    (tmp_path / KUBELET[1:]).unlink()
    write_kubeconfig(
        tmp_path / KUBELET[1:], "https://cloud:6443", authority=authority.certificate, credential=issued
    )
    (kubelet,) = dataclasses.replace(WISH, flags=(*WISH.flags, *flags)).client_changes(ledger)
    pointed = files_of(tmp_path, kubelet)
    assert pointed.cluster.server == server
    assert pointed.user.certificate.read() == issued.certificate
    if server.startswith("https"):
        assert (pointed.cluster.authority.data, pointed.cluster.authority.path) == (b"", AUTHORITY)


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ((), ("--pod-address", "auto", "--tls-signer", "cluster")),
        (
            ("--pod-address=10.0.0.1", "--tls-signer", "local"),
            ("--pod-address=10.0.0.1", "--tls-signer", "local"),
        ),
    ],
)
def test_flags_of_the_operator_override_defaults(flags: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert dataclasses.replace(WISH, flags=flags).arguments == found


def test_the_static_pod_is_written_to_kubelets_manifest_folder(ledger: Ledger) -> None:
    spec = read_spec({**json.loads(json.dumps(WISH.to_json())), "method": "static-pod"})
    _, pod = spec.hub_changes(ledger)
    assert pod.path == STATIC_POD
    assert json.loads(pod.data)["spec"]["containers"][0]["image"] == "edgehub:1"
    files = ("--filter-module", "/etc/edgehub/a.py, /etc/edgehub/b.py,/opt/acme/c.py")
    _, pod = dataclasses.replace(spec, flags=files).hub_changes(ledger)
    volumes = [each.get("hostPath", {}).get("path") for each in json.loads(pod.data)["spec"]["volumes"]]
    assert [each for each in volumes if each in ("/etc/edgehub", "/opt/acme")] == [
        "/etc/edgehub",
        "/opt/acme",
    ]


def test_the_static_pod_mounts_the_files_named_in_its_kubeconfig(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / KUBELET[1:]
    document = yaml.safe_load(path.read_text())
    current = f"{KUBELET_PKI}/kubelet-client-current.pem"
    document["clusters"][0]["cluster"]["certificate-authority"] = "../ssl/ca.crt"
    document["users"] = [{"name": "n1", "user": {"client-certificate": current, "client-key": current}}]
    path.write_text(yaml.safe_dump(document))
    spec = dataclasses.replace(
        WISH, method="static-pod", flags=("--tls-cert", "/tls/a", "--tls-key", "/key/a")
    )
    _, pod = spec.hub_changes(ledger)
    volumes = {each.get("hostPath", {}).get("path") for each in json.loads(pod.data)["spec"]["volumes"]}
    assert volumes == {None, str(OWN_KUBECONFIG), KUBELET_PKI, STATE_DIR, "/etc/ssl", "/tls", "/key"}


def test_a_static_pod_with_a_token_retains_its_mounts(ledger: Ledger, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "token.conf", "https://cloud:6443", token="abcdef.0123456789abcdef")
    document = yaml.safe_load(path.read_text())
    document["clusters"][0]["cluster"]["certificate-authority"] = "/etc/ssl/cloud/ca.crt"
    spec = dataclasses.replace(WISH, method="static-pod", identity="", bootstrap=yaml.safe_dump(document))
    first = spec.hub_changes(ledger)
    ledger.apply(first)
    (second,) = dataclasses.replace(spec, bootstrap="").hub_changes(ledger)
    assert second == first[-1]
    assert "/etc/ssl/cloud" in second.data.decode()


def test_a_kubeconfig_that_points_at_the_hub_gives_no_identity(tmp_path: Path, ledger: Ledger) -> None:
    write_kubeconfig(tmp_path / KUBELET[1:], "http://127.0.0.1:1")
    with pytest.raises(ValueError, match="leads to a hub already"):
        WISH.hub_changes(ledger)


def test_a_node_without_the_kubeconfig_of_kubelet_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    (tmp_path / KUBELET[1:]).unlink()
    with pytest.raises(ValueError, match=f"{KUBELET} is not there"):
        WISH.client_changes(ledger)


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ([], Settings()),
        (["--listen", "::1", "--admin-port=3", "--ui", "none"], Settings(listen="::1", admin_port=3)),
    ],
)
def test_flags_of_the_hub_that_affect_the_installation_are_parsed(flags: list[str], found: Settings) -> None:
    assert parse_hub_flags(flags) == found


@pytest.mark.parametrize(
    ("hub", "found"),
    [
        (Settings(tls_port=0), [("127.0.0.1", 10261)]),
        (
            Settings(listen="::", pod_address=PodAddress((AUTO_ADDRESS,), makes=True)),
            [("::", 10261), ("::", 10268)],
        ),
        (Settings(port=0, pod_address=PodAddress(("10.0.0.7",), makes=False)), [("127.0.0.1", 10268)]),
        (Settings(port=0, tls_port=0), []),
    ],
)
def test_systemd_listens_on_the_ports_of_clients(hub: Settings, found: list[tuple[str, int]]) -> None:
    assert hub.early_listeners == found


@pytest.mark.parametrize("method", ["systemd", "static-pod"])
def test_an_invalid_node_name_is_not_installed(ledger: Ledger, method: Method) -> None:
    files_of = dataclasses.replace(WISH, node="n1\nExecStartPre=/bin/sh", method=method)
    with pytest.raises(ValueError, match="--node"):
        files_of.hub_changes(ledger)


def test_an_invalid_address_is_refused() -> None:
    """It would be written to the sockets' unit and to kubelet's kubeconfig."""
    flags = ["--listen", "127.0.0.1\nListenStream=1", "--pod-address", "169.254.2.1"]
    with pytest.raises(ValueError, match="--listen"):
        parse_hub_flags(flags)


def test_an_invalid_port_is_refused() -> None:
    with pytest.raises(ValueError, match="after --"):
        parse_hub_flags(["--port", "many"])
