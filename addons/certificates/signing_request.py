"""Asks the cluster to sign a certificate for a node: a CertificateSigningRequest, and the wait for its answer.

The signers are kubelet's, whose rules kube-apiserver and kube-controller-manager check: subject, names and usages are
those of a kubelet's client certificate and of its serving certificate. Events on the Node tell the cluster's operators
that the hub lacks a certificate.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from addons.rules.events import about_node, send_event, warning
from kube.certificate_authority import general_name
from kube.concurrency.backoff import Backoff
from kube.http.client import Client
from kube.json_type import Json
from kube.peers import NODE_PREFIX, NODES_GROUP, PEER_ANNOTATION, SERVING_SIGNER, may_be_certified
from kube.requests.request_info import ResourceType

REQUESTS = ResourceType("certificates.k8s.io", "v1", "certificatesigningrequests")
NODES = ResourceType("", "v1", "nodes")
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
"""kube-controller-manager approves and signs its requests: of bootstrap tokens, and of nodes for themselves."""
POLLS = (1.0, 15.0)
"""Seconds to the first look at the answer, and the longest time between looks while an approver may answer at once."""
PATIENCE = 900.0
"""Seconds without an answer after which the hub reports that there is none."""
SLOW_POLLS = 300.0
"""Seconds between looks from then on: a person may approve the request yet."""
REQUEST_LIFE = 86400.0
"""Seconds after which kube-controller-manager deletes an unanswered request.

The next one follows then, so that a cluster without an approver has one request of each hub.
"""


type Tell = Callable[[str], Awaitable[None]]
"""Reports to the cluster's operators why there is no new certificate."""


class SigningFailed(Exception):
    """The cluster did not sign: the message is its reason."""


async def node_names(client: Client, node: str) -> tuple[str, ...]:
    """The names of a Node for its serving certificate, sorted: addresses, and its own. SigningFailed where it has none.

    The cluster certifies no other name, even one that a cloud provider has given the Node.
    """
    answer = await client.request("GET", NODES.path(name=node))
    certifiable = {name for name in answer.found(_addresses_in) if may_be_certified(name, node)}
    if not certifiable:
        raise SigningFailed(f"node {node} has no addresses yet")
    return tuple(sorted(certifiable))


def _addresses_in(known: Json) -> list[str]:
    status = known.get("status") or {}
    return [str(address.get("address", "")) for address in status.get("addresses") or []]


async def signed_certificate(client: Client, request: Json, unanswered: Tell) -> bytes:
    """The certificate (PEM) that the cluster signs for a request. SigningFailed, StatusError or Unreachable otherwise.

    `unanswered` is called once when no answer came in time; the request goes on waiting.
    """
    answer = await client.request("POST", REQUESTS.path(), body=json.dumps(request).encode())
    name = answer.found(lambda made: str(made["metadata"]["name"]))
    polls = _polls(name, unanswered)
    try:
        async with asyncio.timeout(REQUEST_LIFE):
            async for _ in polls:
                answer = await client.request("GET", REQUESTS.path(name=name))
                certificate = answer.found(partial(_certificate_in, name))
                if certificate:
                    return certificate
    except TimeoutError:
        pass
    raise SigningFailed(f"certificate request {name} was not answered for a day")


async def _polls(name: str, unanswered: Tell) -> AsyncIterator[None]:
    """The moments at which to look for an answer: often at first, and seldom once no approver seems to be there."""
    backoff, began = Backoff(*POLLS, jitter=lambda: 0.0), time.monotonic()
    while time.monotonic() - began < PATIENCE:
        await asyncio.sleep(backoff.next())
        yield
    await unanswered(f"certificate request {name} is pending: it needs an approval")
    while True:
        await asyncio.sleep(SLOW_POLLS)
        yield


def _certificate_in(name: str, request: Json) -> bytes:
    status = request.get("status") or {}
    for condition in status.get("conditions") or []:
        if condition.get("type") in ("Denied", "Failed"):
            why = condition.get("message") or condition.get("reason") or "no reason given"
            raise SigningFailed(f"certificate request {name} is {condition['type'].lower()}: {why}")
    return base64.b64decode(status.get("certificate") or "")


def serving_request(node: str, names: tuple[str, ...], key: ec.EllipticCurvePrivateKey) -> Json:
    """The request for a certificate by which a node's hub serves under these names."""
    shown = x509.SubjectAlternativeName([*map(general_name, names)])
    signed = _builder(node).add_extension(shown, critical=False).sign(key, hashes.SHA256())
    request = _request("peer", node, signed, SERVING_SIGNER, "server auth")
    request["metadata"]["annotations"] = {PEER_ANNOTATION: "true"}
    return request


def client_request(node: str, key: ec.EllipticCurvePrivateKey) -> Json:
    """The request for a certificate by which the cloud knows a node."""
    return _request("client", node, _builder(node).sign(key, hashes.SHA256()), CLIENT_SIGNER, "client auth")


def _builder(node: str) -> x509.CertificateSigningRequestBuilder:
    subject = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, NODES_GROUP),
        x509.NameAttribute(NameOID.COMMON_NAME, NODE_PREFIX + node),
    ]
    return x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))


def _request(use: str, node: str, request: x509.CertificateSigningRequest, signer: str, usage: str) -> Json:
    return {
        "apiVersion": REQUESTS.api_version,
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": f"edgehub-{use}-{node[:200]}-"},
        "spec": {
            "request": base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode(),
            "signerName": signer,
            "usages": ["digital signature", usage],
        },
    }


def event_of(node: str, what: str, why: str, now: datetime.datetime) -> Json:
    """The Event about a certificate. Its name follows from the fault, so that retries update one Event."""
    digest = hashlib.sha256(f"{what}\0{why}".encode()).hexdigest()[:16]
    message = f"the hub has no new certificate {what}: {why}"[:1024]
    return warning(about_node(node), digest, "NoCertificate", message, node, now)


def teller(client: Client, node: str, what: str) -> Tell:
    """Sends an Event for each reason. `client` sends with the node's own identity."""

    async def tell(why: str) -> None:
        await send_event(client, event_of(node, what, why, datetime.datetime.now(datetime.UTC)))

    return tell
