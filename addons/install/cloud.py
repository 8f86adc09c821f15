"""Requests of the installation and of the doctor: to the cloud, past the hub, and to the hub on this node; and the CA
of a cluster that is not trusted yet, which must have the operator's hash.

As with `kubeadm join`: every cluster of kubeadm publishes its CA in the ConfigMap kube-public/cluster-info, for
everybody, and signs that text for each bootstrap token (JWS, RFC 7515, detached). The signature proves to the token's
holder that the cluster knows the token and that the text is unchanged.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from addons.link.health import Cloud, ServerHealth
from addons.link.link import UpstreamManager
from addons.link.own_requests import OwnRequests
from addons.link.request_records import RequestRecords
from addons.link.servers import parse_server
from addons.requests.caller import CredentialSource
from addons.telemetry.component_traffic import ComponentTraffic
from kube.errors import StatusError
from kube.fleet import ANNOTATION, LEASES
from kube.http.access_review import is_allowed
from kube.http.client import Client, Unreachable
from kube.http.kubeconfig import Cluster, Credentials, DataOrFile
from kube.json_type import Json

USER_AGENT = "edgehub-install"
TIMEOUT = 10.0
"""Seconds for one answer."""


@asynccontextmanager
async def cloud(credentials: Credentials) -> AsyncIterator[Client]:
    """A client with the rights of a kubeconfig. ValueError where its server is no URL."""
    parts = urlsplit(credentials.cluster.server)
    async with _client(f"{parts.scheme}://{parts.netloc}", parts.path, credentials) as client:
        yield client


@asynccontextmanager
async def local(url: str) -> AsyncIterator[Client]:
    """A client of a port of the hub."""
    async with _client(url, "", None) as client:
        yield client


@asynccontextmanager
async def _client(url: str, path: str, credentials: Credentials | None) -> AsyncIterator[Client]:
    server, link = parse_server(url), UpstreamManager(Cloud([], "priority"), credentials)
    health = ServerHealth(server)
    # Not among the servers of the cloud: the link would log that it is down, and the caller says so already.
    link.start_peers(None, lambda: {str(server): health})
    session = OwnRequests(link, CredentialSource.HUB, ComponentTraffic(), RequestRecords())
    try:
        yield Client(session, server.url + path, {"User-Agent": USER_AGENT})
    finally:
        link.close()


async def get(client: Client, path: str) -> Json:
    """An object of the API; errors as `kube.http.client.Client.request`."""
    document: Json = json.loads((await client.request("GET", path, timeout=TIMEOUT)).body)
    return document


async def may(client: Client, attributes: Json) -> bool:
    """Whether the client's user has a right to a resource; errors as `get`."""
    return await is_allowed(client, {"resourceAttributes": attributes}, timeout=TIMEOUT)


async def remove_status(client: Client, node: str) -> None:
    """Remove the status of a hub from its node's Lease; kubelet would keep it there. Errors as `get`."""
    patch = json.dumps({"metadata": {"annotations": {ANNOTATION: None}}}).encode()
    path, kind = f"{LEASES}/{node}", "application/merge-patch+json"
    await client.request("PATCH", path, body=patch, content_type=kind, timeout=TIMEOUT)


CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
SIGNATURE = "jws-kubeconfig-"
"""The prefix of a signature's key in this ConfigMap; the token's first part follows."""
HASH = re.compile(r"sha256:[0-9a-f]{64}")
TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")


def check_token(token: str) -> None:
    """ValueError for a malformed bootstrap token."""
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


async def authority_of(server: str, hashes: Collection[str], token: str) -> bytes:
    """Return the cluster's CA (PEM) from a URL; ValueError if its hash is none of these, or the server does not answer.

    The first request trusts any server and carries no credentials: the answer must be signed for the token. The second
    one verifies that the server's own certificate is of that CA.
    """
    wanted = {digest.lower() for digest in hashes}
    for digest in wanted:
        if not HASH.fullmatch(digest):
            raise ValueError(f"--ca-hash {digest} is not sha256: and 64 hexadecimal digits")
    document = await _published(server, _nobodys(server, b"", insecure=True), token)
    pinned = [authority for authority in document if hash_of(authority) in wanted]
    if not pinned:
        shown = ", ".join(map(hash_of, document)) or "none"
        raise ValueError(
            f"{server} publishes a CA of another hash, {shown}: is it the right cluster? Nothing was sent to it"
        )
    pem = b"".join(authority.public_bytes(serialization.Encoding.PEM) for authority in pinned)
    await _published(server, _nobodys(server, pem), token)
    return pem


def check_signature(text: str, signature: str, token: str) -> None:
    """ValueError where a detached JWS (`header..signature`) is not of this text and this bootstrap token.

    The key is the token's second part; the header names the first part, and HMAC with SHA-256.
    """
    name, _, secret = token.partition(".")
    header, _, rest = signature.partition(".")
    try:
        said = json.loads(_decoded(header))
        given = _decoded(rest.removeprefix("."))
    except ValueError as error:
        raise ValueError(f"it cannot be read: {error}") from None
    if not rest.startswith(".") or not isinstance(said, dict):
        raise ValueError("it is not of the form header..signature")
    if (said.get("alg"), said.get("kid")) != ("HS256", name):
        raise ValueError(f"it is by {said.get('alg')!r:.40} for the token {said.get('kid')!r:.40}")
    payload = base64.urlsafe_b64encode(text.encode()).rstrip(b"=")
    wanted = hmac.digest(secret.encode(), header.encode() + b"." + payload, "sha256")
    if not hmac.compare_digest(given, wanted):
        raise ValueError("it is of another text or another token")


async def _published(server: str, credentials: Credentials, token: str) -> list[x509.Certificate]:
    try:
        async with cloud(credentials) as client:
            data = (await get(client, CLUSTER_INFO)).get("data") or {}
    except StatusError as error:
        raise ValueError(
            f"{server} does not publish its CA (kube-public/cluster-info): {error}; "
            "`kubeadm init phase bootstrap-token` does it, or give the hub a kubeconfig by --bootstrap-kubeconfig"
        ) from error
    except Unreachable as error:
        raise ValueError(f"{server}: {error}") from error
    text, signature = data.get("kubeconfig", ""), data.get(SIGNATURE + token.partition(".")[0], "")
    if not signature:
        raise ValueError(
            f"{server} has not signed its CA for this token: has the token expired? `kubeadm token list` shows "
            "valid ones, and `kubeadm token create --print-join-command` makes another"
        )
    try:
        check_signature(text, signature, token)
    except ValueError as error:
        raise ValueError(
            f"{server}: the signature of kube-public/cluster-info is not this token's: {error}; nothing was sent to it"
        ) from None
    try:
        # A kubeconfig that has one cluster, and neither users nor contexts.
        (entry,) = yaml.safe_load(text)["clusters"]
        pem = base64.b64decode(entry["cluster"]["certificate-authority-data"])
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise ValueError(
            f"{server}: the kubeconfig in kube-public/cluster-info cannot be read: {error!r}"
        ) from error


def _decoded(part: str) -> bytes:
    """A part of a JWS, which has no padding."""
    return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)


def _nobodys(server: str, authority: bytes, *, insecure: bool = False) -> Credentials:
    return Credentials(Cluster(server, insecure=insecure, authority=DataOrFile(authority)))
