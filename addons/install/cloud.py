"""Clients of the installation and the doctor, for the cloud and for the local hub; and discovery of a cluster's CA by
its hash.

Discovery works as in `kubeadm join`: a kubeadm cluster publishes its CA in the ConfigMap kube-public/cluster-info,
readable without credentials, with a signature for each bootstrap token (JWS, RFC 7515, detached). The signature proves
to the token's owner that the cluster knows the token, and that the content is unchanged.
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
from addons.link.link import PoolLink, UpstreamManager
from addons.link.own_requests import OwnRequests
from addons.link.request_records import RequestRecords
from addons.link.servers import parse_server
from addons.requests.caller import CredentialSource
from addons.settings import Settings
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
    """Create a client with a kubeconfig's rights. ValueError if its server is not a URL."""
    parts = urlsplit(credentials.cluster.server)
    async with _client(f"{parts.scheme}://{parts.netloc}", parts.path, credentials) as client:
        yield client


@asynccontextmanager
async def local(url: str) -> AsyncIterator[Client]:
    """Create a client of a port of the local hub."""
    async with _client(url, "", None) as client:
        yield client


@asynccontextmanager
async def _client(url: str, path: str, credentials: Credentials | None) -> AsyncIterator[Client]:
    server, link = parse_server(url), UpstreamManager(Cloud([], "priority"), credentials)
    health = ServerHealth(server)
    # Not a server of the cloud: the link would log its failures, which the caller reports anyway.
    link.pool = PoolLink(peers=lambda: {str(server): health})
    session = OwnRequests(link, CredentialSource.HUB, ComponentTraffic(), RequestRecords())
    try:
        yield Client(session, server.url + path, {"User-Agent": USER_AGENT})
    finally:
        link.close()


async def get(client: Client, path: str) -> Json:
    """Return an object of the API. Errors as in `kube.http.client.Client.request`."""
    document: Json = json.loads((await client.request("GET", path, timeout=TIMEOUT)).body)
    return document


async def may(client: Client, attributes: Json) -> bool:
    """Return whether the client's user has access to a resource. Errors as in `get`."""
    return await is_allowed(client, {"resourceAttributes": attributes}, timeout=TIMEOUT)


async def remove_status(client: Client, node: str) -> None:
    """Remove a hub's status from its node's Lease, where kubelet would preserve it. Errors as in `get`."""
    patch = json.dumps({"metadata": {"annotations": {ANNOTATION: None}}}).encode()
    path, kind = f"{LEASES}/{node}", "application/merge-patch+json"
    await client.request("PATCH", path, body=patch, content_type=kind, timeout=TIMEOUT)


async def delete_pod(hub: Settings, pod: str) -> None:
    """Delete a pod of this node, namespace/name, through its hub. Errors as `get`."""
    namespace, name = pod.split("/")
    async with local(hub.plain_url) as client:
        await client.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", timeout=TIMEOUT)


CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
SIGNATURE = "jws-kubeconfig-"
"""Prefix of a signature's key in this ConfigMap; the token's id follows."""
HASH = re.compile(r"sha256:[0-9a-f]{64}")
TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")


def check_token(token: str) -> None:
    """Raise ValueError for a malformed bootstrap token."""
    if not TOKEN.fullmatch(token):
        raise ValueError(
            "--token is of the form abcdef.0123456789abcdef, as `kubeadm token create` prints it"
        )


def hash_of(certificate: x509.Certificate) -> str:
    """Return the hash of a CA's public key in the form of kubeadm's --discovery-token-ca-cert-hash."""
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return f"sha256:{hashlib.sha256(key).hexdigest()}"


async def authority_of(server: str, hashes: Collection[str], token: str) -> bytes:
    """Return the cluster's CA (PEM) from a server. ValueError if its hash is not one of `hashes`, or the server does
    not answer.

    The first request trusts any server and sends no credentials; the answer must be signed for the token. The second
    request verifies that the server's certificate was issued by that CA.
    """
    wanted = {digest.lower() for digest in hashes}
    for digest in wanted:
        if not HASH.fullmatch(digest):
            raise ValueError(f"--ca-hash {digest} is not sha256: and 64 hexadecimal digits")
    document = await _published(server, _anonymous(server, b"", insecure=True), token)
    pinned = [authority for authority in document if hash_of(authority) in wanted]
    if not pinned:
        shown = ", ".join(map(hash_of, document)) or "none"
        raise ValueError(
            f"{server} publishes a CA of another hash, {shown}: is it the right cluster? Nothing was sent to it"
        )
    pem = b"".join(authority.public_bytes(serialization.Encoding.PEM) for authority in pinned)
    await _published(server, _anonymous(server, pem), token)
    return pem


def check_signature(text: str, signature: str, token: str) -> None:
    """Raise ValueError unless a detached JWS (`header..signature`) signs this text by this bootstrap token.

    The key is the token's secret; the header contains the token's id. The algorithm is HMAC with SHA-256.
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
        raise ValueError("it signs another text, or uses another token")


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
        # A kubeconfig with one cluster, and without users or contexts.
        (entry,) = yaml.safe_load(text)["clusters"]
        pem = base64.b64decode(entry["cluster"]["certificate-authority-data"])
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        raise ValueError(
            f"{server}: the kubeconfig in kube-public/cluster-info cannot be read: {error!r}"
        ) from error


def _decoded(part: str) -> bytes:
    """Decode a part of a JWS, which has no padding."""
    return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)


def _anonymous(server: str, authority: bytes, *, insecure: bool = False) -> Credentials:
    return Credentials(Cluster(server, insecure=insecure, authority=DataOrFile(authority)))
