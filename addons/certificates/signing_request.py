"""Requests a certificate for a node by a CertificateSigningRequest, and waits for the answer.

The signers are kubelet's, whose rules kube-apiserver and kube-controller-manager check: subject, names and usages are
those of kubelet's client or serving certificate. Events on the Node tell cluster operators that the hub lacks a
certificate.
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
"""Signer of client certificates. kube-controller-manager approves and signs requests by bootstrap tokens, and by nodes
for themselves.
"""
POLLS = (1.0, 15.0)
"""Seconds before the first poll, and maximum seconds between polls until REPORT_AFTER has passed."""
REPORT_AFTER = 900.0
"""Seconds without an answer after which the hub reports that."""
SLOW_POLLS = 300.0
"""Seconds between polls after REPORT_AFTER: an operator may still approve the request."""
REQUEST_LIFE = 86400.0
"""Seconds after which kube-controller-manager deletes an unanswered request.

The hub then sends the next one, so a cluster without an approver has one request per hub.
"""


type Reporter = Callable[[str], Awaitable[None]]
"""Reports to cluster operators why there is no new certificate."""


class SigningFailed(Exception):
    """Raised if the cluster did not sign; the message is the reason."""


async def node_names(client: Client, node: str) -> tuple[str, ...]:
    """Return the sorted names for a Node's serving certificate: its addresses and its own name. SigningFailed if it has
    none.

    Other names, such as those of a cloud provider, are omitted, because the cluster does not certify them.
    """
    answer = await client.request("GET", NODES.path(name=node))
    certifiable = {name for name in answer.found(_addresses_in) if may_be_certified(name, node)}
    if not certifiable:
        raise SigningFailed(f"node {node} has no addresses yet")
    return tuple(sorted(certifiable))


def _addresses_in(known: Json) -> list[str]:
    status = known.get("status") or {}
    return [str(address.get("address", "")) for address in status.get("addresses") or []]


async def signed_certificate(client: Client, request: Json, unanswered: Reporter) -> bytes:
    """Send a request, and return the certificate (PEM). SigningFailed, StatusError or Unreachable if that fails.

    `unanswered` is called once after REPORT_AFTER seconds without an answer; the wait continues.
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


async def _polls(name: str, unanswered: Reporter) -> AsyncIterator[None]:
    """Yield whenever a poll is due: often at first, and rarely once no approver seems to exist."""
    backoff, began = Backoff(*POLLS, jitter=lambda: 0.0), time.monotonic()
    while time.monotonic() - began < REPORT_AFTER:
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
    """Return the signing request for a serving certificate of a node's hub with these names."""
    shown = x509.SubjectAlternativeName([*map(general_name, names)])
    signed = _builder(node).add_extension(shown, critical=False).sign(key, hashes.SHA256())
    request = _request("peer", node, signed, SERVING_SIGNER, "server auth")
    request["metadata"]["annotations"] = {PEER_ANNOTATION: "true"}
    return request


def client_request(node: str, key: ec.EllipticCurvePrivateKey) -> Json:
    """Return the signing request for a node's client certificate."""
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
    """Return an Event about a missing certificate. Its name is derived from the error, so that retries update one
    Event.
    """
    digest = hashlib.sha256(f"{what}\0{why}".encode()).hexdigest()[:16]
    message = f"the hub has no new certificate {what}: {why}"[:1024]
    return warning(about_node(node), digest, "NoCertificate", message, node, now)


def event_sender(client: Client, node: str, what: str) -> Reporter:
    """Return a function that sends an Event with a reason. `client` sends with the node's own identity."""

    async def report(why: str) -> None:
        await send_event(client, event_of(node, what, why, datetime.datetime.now(datetime.UTC)))

    return report
