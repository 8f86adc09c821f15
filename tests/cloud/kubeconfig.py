"""Kubeconfig files: the API's address, the trusted CA and the client's identity."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from tests.cloud.pki import Credential


def write_kubeconfig(
    path: Path,
    server: str,
    *,
    authority: bytes = b"",
    credential: Credential | None = None,
    token: str = "",
    namespace: str = "default",
    user: str = "test",
    more: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write a kubeconfig (0600) with all data inline; return its path. `server` is a URL; `authority` the PEM of the
    trusted CA. Without credential and token the client is anonymous, like a node component at the hub's plaintext port.
    `user` is the name of its entry, and `more` has further fields of the cluster."""
    cluster: dict[str, Any] = {"server": server, **more}
    if authority:
        cluster["certificate-authority-data"] = _inline(authority)
    identity: dict[str, Any] = {}
    if credential:
        identity["client-certificate-data"] = _inline(credential.certificate)
        identity["client-key-data"] = _inline(credential.key)
    if token:
        identity["token"] = token
    path.touch(mode=0o600)
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": user, "user": identity}],
                "contexts": [
                    {"name": "test", "context": {"cluster": "test", "user": user, "namespace": namespace}}
                ],
                "current-context": "test",
            },
            sort_keys=False,
        )
    )
    return path


def _inline(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
