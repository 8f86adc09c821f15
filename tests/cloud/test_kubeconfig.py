"""Kubeconfig files."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import yaml

from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Credential


def read(path: Path) -> dict[str, Any]:
    """The cluster, user and context that the current context leads to."""
    content = yaml.safe_load(path.read_text())
    [context] = [
        each["context"] for each in content["contexts"] if each["name"] == content["current-context"]
    ]
    [cluster] = [each["cluster"] for each in content["clusters"] if each["name"] == context["cluster"]]
    [user] = [each["user"] for each in content["users"] if each["name"] == context["user"]]
    return {"cluster": cluster, "user": user, "namespace": context["namespace"]}


def test_everything_is_inline(tmp_path: Path) -> None:
    path = write_kubeconfig(
        tmp_path / "config", "https://x:1", authority=b"CA", credential=Credential(b"CERT", b"KEY"), token="t"
    )
    assert read(path) == {
        "cluster": {"server": "https://x:1", "certificate-authority-data": base64.b64encode(b"CA").decode()},
        "user": {
            "client-certificate-data": base64.b64encode(b"CERT").decode(),
            "client-key-data": base64.b64encode(b"KEY").decode(),
            "token": "t",
        },
        "namespace": "default",
    }


def test_nothing_is_said_that_is_not_known(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", "http://x:1", namespace="kube-system")
    assert read(path) == {"cluster": {"server": "http://x:1"}, "user": {}, "namespace": "kube-system"}


def test_only_the_owner_reads_it(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", "http://x:1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
