"""Produces kubeconfigs as text: for the hub, for a bootstrap, for another folder, and redacted for a diff. Pure."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from kube.http.kubeconfig import Locate, parse_kubeconfig, parse_server

SERVER_LINE = re.compile(
    r"^(?P<key>\s*(?:-\s+)?server:\s*)(?P<quote>[\"']?)(?P<url>\S+?)(?P=quote)(?P<end>\s*)$", re.MULTILINE
)
HIDDEN = "(not shown)"
SECRETS = ("client-key-data", "token", "password")
SECRET_TEXT = re.compile(rf"(?P<key>\b(?:{'|'.join(SECRETS)})[\"']?:[ \t]*)[^\s|>].*$", re.MULTILINE)
MIN_SECRET_LENGTH = 6
"""Minimum characters of a value that is masked everywhere. A shorter one would mask text that is not secret."""
PROXY = "proxy-url"
"""Cluster field with a proxy to the server."""
SERVER_FIELDS = (PROXY, "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name")
"""Cluster fields that define how its previous server is reached and trusted."""
FILE_KEYS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Fields of a cluster or user that name a file."""


def server_of(text: str) -> str:
    """Return the server of the current context. ValueError if the text is not a kubeconfig."""
    return parse_server(_document(text))


def pointed_at(text: str, hub: str, authority: Path | None = None) -> str:
    """Replace the current context's server by the hub's URL; remove only a proxy, and preserve comments.

    `authority` is the file of the CA for the hub's https URL; it replaces the cluster's CA. Credentials stay, too:
    kubelet continues to renew its certificate, which the hub presents to the cloud.
    """
    server = server_of(text)

    def replaced(match: re.Match[str]) -> str:
        return f"{match['key']}{hub}{match['end']}" if match["url"] == server else match[0]

    document = _document(text)
    clusters = [
        cluster["cluster"] for cluster in document["clusters"] if cluster["cluster"].get("server") == server
    ]
    changed = SERVER_LINE.sub(replaced, text)
    if not authority and server_of(changed) == hub and not any(PROXY in cluster for cluster in clusters):
        return changed
    for (
        cluster
    ) in clusters:  # JSON, YAML in an unusual form, a proxy, which does not reach this node, or another CA
        cluster["server"] = hub
        for name in SERVER_FIELDS if authority else (PROXY,):
            cluster.pop(name, None)
        if authority:
            cluster["certificate-authority"] = str(authority)
    return yaml.safe_dump(document, sort_keys=False)


def has_verifiable_certificate(text: str, folder: Path, locate: Locate) -> bool:
    """Whether the client certificate of a kubeconfig in `folder` was issued by the CA that the kubeconfig names.

    The hub verifies client certificates by that CA. k3s has separate CAs for servers and clients.
    """
    try:
        credentials = parse_kubeconfig(_document(text), folder, locate=locate)
        leaf = x509.load_pem_x509_certificates(credentials.user.certificate.read())[0]
        return any(_has_issued(authority, leaf) for authority in credentials.cluster.authorities)
    except (OSError, ValueError):
        return False


def _has_issued(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def without_credentials(hub: str) -> str:
    """Return a kubeconfig for a component of this node, whose requests get the node's identity from the hub."""
    return _written("hub", {"server": hub})


def bootstrap_kubeconfig(server: str, authority: bytes, token: str) -> str:
    """Return a kubeconfig with a bootstrap token. `authority` is the cluster's CA in PEM."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority).decode()}
    return _written("cloud", cluster, {"name": "bootstrap", "user": {"token": token}})


def moved(text: str, folder: Path, to: Path) -> str:
    """Return a kubeconfig for another folder: file names relative to `folder` become absolute."""
    if folder == to:
        return text
    document = _document(text)
    changes = False
    for section in _sections(document):
        for key in FILE_KEYS:
            if section.get(key) and not Path(section[key]).is_absolute():
                section[key] = str(folder / section[key])
                changes = True
    return yaml.safe_dump(document, sort_keys=False) if changes else text


def folders_of(text: str, folder: Path) -> set[str]:
    """Return the folders of the files that a kubeconfig in `folder` names."""
    named = (section[key] for section in _sections(_document(text)) for key in FILE_KEYS if section.get(key))
    return {os.path.normpath((folder / path).parent) for path in named}


def redacted(diff: str, texts: Iterable[str]) -> str:
    """Return a diff of these kubeconfigs without private keys, tokens and passwords, in any form of YAML."""
    secrets = {secret for text in texts for secret in _secrets_in(text) if len(secret) >= MIN_SECRET_LENGTH}
    for secret in sorted(secrets, key=len, reverse=True):
        diff = diff.replace(secret, HIDDEN)
    return SECRET_TEXT.sub(lambda match: f"{match['key']}{HIDDEN}", diff)


def _sections(document: Any) -> list[dict[str, Any]]:
    """Return the clusters and users of a kubeconfig."""
    sections = [cluster.get("cluster") for cluster in document.get("clusters") or ()]
    sections += [user.get("user") for user in document.get("users") or ()]
    return [section for section in sections if section]


def _secrets_in(text: str) -> Iterator[str]:
    """Yield the secrets in a text, line by line; none if the text is not a kubeconfig."""
    try:
        users = _document(text)["users"]
        secrets = [user["user"].get(key) for user in users for key in SECRETS if user.get("user")]
    except (ValueError, TypeError, KeyError, AttributeError):
        return
    for value in filter(None, secrets):
        yield from str(value).split()


def _written(name: str, cluster: dict[str, str], user: dict[str, Any] | None = None) -> str:
    """Return a kubeconfig with one cluster. Without a user, its reader sends no credentials."""
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
        raise ValueError(f"it is not valid YAML: {error}") from error
