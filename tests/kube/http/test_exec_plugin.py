"""Exec plugins: the output that client-go accepts or refuses, and the plugin's input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kube.http.exec_plugin import ExecCredentials, parse_exec

V1 = "client.authentication.k8s.io/v1"
CLUSTER = {
    "server": "https://10.0.0.1:6443",
    "tls-server-name": "kubernetes",
    "certificate-authority": "/etc/ca.crt",
    "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"region": "north"}}],
}
STATUS = {"token": "secret", "expirationTimestamp": "2026-11-23T12:00:00Z"}


def script(folder: Path, text: str, name: str = "plugin") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def printed(status: object, version: str = V1) -> str:
    answer = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    return f"cat <<'END'\n{answer}\nEND"


def run(section: dict[str, Any], folder: Path = Path("/")) -> ExecCredentials:
    return parse_exec({"apiVersion": V1, **section}, folder, CLUSTER, lambda: b"ca").run()


@pytest.mark.parametrize("version", [V1, "client.authentication.k8s.io/v1beta1"])
def test_a_token_with_an_expiry_is_read(tmp_path: Path, version: str) -> None:
    script(tmp_path, printed(STATUS, version))
    found = run({"apiVersion": version, "command": "./plugin"}, tmp_path)
    assert found == ExecCredentials(b"secret", b"", b"", 1795435200.0)


def test_a_certificate_without_an_expiry_is_read(tmp_path: Path) -> None:
    status = {"clientCertificateData": "certificate", "clientKeyData": "key"}
    path = script(tmp_path, printed(status))
    assert run({"command": str(path)}) == ExecCredentials(b"", b"certificate", b"key", None)


def test_the_plugin_gets_arguments_variables_and_the_cluster_of_the_kubeconfig(tmp_path: Path) -> None:
    script_of_plugin = f'echo "$KUBERNETES_EXEC_INFO" >{tmp_path}/told; echo "$*,$REGION" >>{tmp_path}/told'
    path = script(tmp_path, f"{script_of_plugin}\n{printed(STATUS)}")
    section = {"command": str(path), "args": ["get", "token"], "env": [{"name": "REGION", "value": "north"}]}
    run({**section, "provideClusterInfo": True})
    info, arguments = (tmp_path / "told").read_text().splitlines()
    assert arguments == "get token,north"
    assert json.loads(info) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://10.0.0.1:6443",
                "tls-server-name": "kubernetes",
                "certificate-authority-data": "Y2E=",
                "config": {"region": "north"},
            },
        },
    }
    run(section)
    assert "cluster" not in json.loads((tmp_path / "told").read_text().splitlines()[0])["spec"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo no session, log in >&2; exit 3", "ended with status 3: no session, log in"),
        ("exit 3", "ended with status 3$"),
        ("echo secret", "its output is not an ExecCredential"),
        ("echo '{}'", "its output is not an ExecCredential"),
        (
            printed(STATUS, "client.authentication.k8s.io/v1beta1"),
            "and it gave client.authentication.k8s.io/v1beta1",
        ),
        (printed(None), "has no status"),
        (printed({}), "neither a token nor a certificate"),
        (printed({"token": "secret", "clientKeyData": "key"}), "a key alone"),
        (printed({"token": "secret", "expirationTimestamp": "soon"}), "Invalid isoformat"),
    ],
)
def test_a_plugin_without_credentials_is_reported_without_its_output(
    tmp_path: Path, text: str, message: str
) -> None:
    path = script(tmp_path, text)
    with pytest.raises(ValueError, match=message) as raised:
        run({"command": str(path)})
    assert str(path) in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_missing_plugin_is_reported_with_the_install_hint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"exec plugin \S+/none is not there: install it from the vendor"):
        run({"command": "./none", "installHint": "install it\nfrom the vendor"}, tmp_path)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"},
            "exec.apiVersion must be one of",
        ),
        ({"apiVersion": V1}, "no command"),
        ({"apiVersion": V1, "command": "x", "interactiveMode": "Always"}, "no terminal"),
    ],
)
def test_an_unusable_exec_section_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_exec(section, Path("/"), CLUSTER, lambda: b"")
