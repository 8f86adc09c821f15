"""Kubeconfigs of a node, as texts: that lead to the hub or, by a token, to the cloud; copies; one to show. Pure."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import yaml

from kube.http.kubeconfig import parse_kubeconfig

SERVER_LINE = re.compile(
    r"^(?P<key>\s*(?:-\s+)?server:\s*)(?P<quote>[\"']?)(?P<url>\S+?)(?P=quote)(?P<end>\s*)$", re.MULTILINE
)
SECRET_LINE = re.compile(r"^(?P<key>.\s*(?:-\s+)?(?:client-key-data|token|password):\s*)\S.*$", re.MULTILINE)
FILE_KEYS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""The fields of a cluster or a user that name a file."""


def server_of(text: str) -> str:
    """The server of the current context; ValueError where the text is no kubeconfig."""
    return parse_kubeconfig(_document(text), Path("/")).server


def pointed_at(text: str, hub: str) -> str:
    """The kubeconfig with the hub's URL in place of the present server. All else stays, comments too.

    The credentials stay as well: kubelet goes on renewing its certificate, which the hub shows to the cloud.
    """
    server = server_of(text)

    def replaced(found: re.Match[str]) -> str:
        return f"{found['key']}{hub}{found['end']}" if found["url"] == server else found[0]

    changed = SERVER_LINE.sub(replaced, text)
    if server_of(changed) == hub:
        return changed
    document = _document(text)  # JSON, or YAML in an unusual form
    for entry in document["clusters"]:
        if entry["cluster"].get("server") == server:
            entry["cluster"]["server"] = hub
    return yaml.safe_dump(document, sort_keys=False)


def without_credentials(hub: str) -> str:
    """A kubeconfig for a component of the node, to which the hub lends the node's identity."""
    return _written("hub", {"server": hub})


def bootstrap_kubeconfig(server: str, authority: bytes, token: str) -> str:
    """A kubeconfig with a bootstrap token. `authority` is the cluster's CA in PEM."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()}
    return _written("cloud", cluster, {"name": "bootstrap", "user": {"token": token}})


def moved(text: str, folder: Path, to: Path) -> str:
    """The kubeconfig for another folder: file names that are relative to `folder` become absolute."""
    if folder == to:
        return text
    document = _document(text)
    sections = [each.get("cluster") for each in document.get("clusters") or ()]
    sections += [each.get("user") for each in document.get("users") or ()]
    changes = False
    for section in filter(None, sections):
        for key in FILE_KEYS:
            if section.get(key) and not Path(section[key]).is_absolute():
                section[key] = str(folder / section[key])
                changes = True
    return yaml.safe_dump(document, sort_keys=False) if changes else text


def redacted(diff: str) -> str:
    """A diff without the private keys, tokens and passwords of the kubeconfigs in it."""
    return SECRET_LINE.sub(lambda found: f"{found['key']}(not shown)", diff)


def _written(name: str, cluster: dict[str, str], user: dict[str, Any] | None = None) -> str:
    """The kubeconfig of one cluster; without a user, who calls has no credentials."""
    context = {"cluster": name, "user": user["name"] if user else ""}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        **({"users": [user]} if user else {}),
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False)


def _document(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"it is no YAML: {error}") from error
