"""Fetches the CA of a cluster that is not trusted yet, and takes none but the one whose hash the operator gives.

As `kubeadm join`: every cluster of kubeadm publishes its CA in the ConfigMap kube-public/cluster-info, for everybody.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from addons.install.cloud import cloud, get
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.http.kubeconfig import Credentials, Piece
from kube.http.tls import tls_context

CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
HASH = re.compile(r"sha256:[0-9a-f]{64}")
TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")


def check_token(token: str) -> None:
    """ValueError for what is no bootstrap token."""
    if not TOKEN.fullmatch(token):
        raise ValueError(
            "--token is of the form abcdef.0123456789abcdef, as `kubeadm token create` prints it"
        )


def hash_of(certificate: x509.Certificate) -> str:
    """The hash of a CA's public key, as kubeadm's --discovery-token-ca-cert-hash has it."""
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return f"sha256:{hashlib.sha256(key).hexdigest()}"


async def authority_of(server: str, hashes: Collection[str]) -> bytes:
    """The CA (PEM) of the cluster at a URL; ValueError where it has none of these hashes, or cannot be asked.

    The first request trusts anybody, and carries no credentials. The second one shows that the server's own
    certificate is of that CA.
    """
    wanted = {each.lower() for each in hashes}
    for each in wanted:
        if not HASH.fullmatch(each):
            raise ValueError(f"--ca-hash {each} is not sha256: and 64 hexadecimal digits")
    found = await _published(server, _nobodys(server, b"", insecure=True))
    pinned = [each for each in found if hash_of(each) in wanted]
    if not pinned:
        shown = ", ".join(map(hash_of, found)) or "none"
        raise ValueError(
            f"{server} publishes a CA of another hash, {shown}: is it the right cluster? Nothing was sent to it"
        )
    pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in pinned)
    await _published(server, _nobodys(server, pem))
    return pem


async def _published(server: str, credentials: Credentials) -> list[x509.Certificate]:
    try:
        async with cloud(credentials, tls_context(credentials)) as client:
            text = (await get(client, CLUSTER_INFO)).get("data", {}).get("kubeconfig", "")
    except StatusError as error:
        raise ValueError(
            f"{server} does not publish its CA (kube-public/cluster-info): {error}; "
            "`kubeadm init phase bootstrap-token` does it, or give the hub a kubeconfig by --bootstrap-kubeconfig"
        ) from error
    except Unreachable as error:
        raise ValueError(f"{server}: {error}") from error
    try:
        return _authorities_in(yaml.safe_load(text))
    except (ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise ValueError(
            f"{server}: the kubeconfig in kube-public/cluster-info cannot be read: {error!r}"
        ) from error


def _authorities_in(document: Any) -> list[x509.Certificate]:
    """The CAs of a kubeconfig that has clusters, and neither users nor contexts."""
    (entry,) = document["clusters"]
    return x509.load_pem_x509_certificates(base64.b64decode(entry["cluster"]["certificate-authority-data"]))


def _nobodys(server: str, authority: bytes, *, insecure: bool = False) -> Credentials:
    nothing = Piece()
    return Credentials(server, "", insecure, Piece(authority), nothing, nothing, nothing)
