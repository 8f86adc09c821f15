"""A request for a certificate, the cluster's answers to it, and the Event about one that the hub lacks."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from addons.certificates import signing_request
from addons.certificates.client_certificates import node_of
from addons.certificates.signing_request import (
    NotSigned,
    client_request,
    event_of,
    node_names,
    serving_request,
    signed_certificate,
    teller,
)
from kube.certificate_authority import names_of
from tests.addons.support.scripted_client import Asked, ScriptedClient
from tests.cloud.pki import Authority

AUTHORITY = Authority()
KEY = ec.generate_private_key(ec.SECP256R1())
NAMES = ("10.0.0.1", "n1.example")


async def ignore(_why: str) -> None:
    """Notify nobody."""


class Signer:
    """The cluster: takes a request, and answers it at the second look."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.created: dict[str, Any] = {}
        self.looks = 0

    def __call__(self, asked: Asked) -> dict[str, Any]:
        if asked.method == "POST":
            assert asked.path == "/apis/certificates.k8s.io/v1/certificatesigningrequests"
            self.created = json.loads(asked.body)
            return {"metadata": {"name": "edgehub-peer-n1-x7"}}
        assert asked.path.endswith("/certificatesigningrequests/edgehub-peer-n1-x7")
        self.looks += 1
        return {"status": self.answer if self.looks > 1 else {}}


async def test_the_request_is_a_kubelets() -> None:
    signer = Signer(certificate=base64.b64encode(b"signed").decode())
    assert (
        await signed_certificate(ScriptedClient(signer), serving_request("n1", NAMES, KEY), ignore)
        == b"signed"
    )
    assert signer.created["metadata"]["annotations"] == {"edgehub.io/peer": "true"}
    spec = signer.created["spec"]
    assert spec["signerName"] == "kubernetes.io/kubelet-serving"
    assert spec["usages"] == ["digital signature", "server auth"]
    made = AUTHORITY.sign_request(base64.b64decode(spec["request"]), timedelta(hours=1))
    certificate = x509.load_pem_x509_certificate(made)
    assert node_of(certificate) == "n1"
    assert names_of(certificate) == NAMES
    assert certificate.public_key() == KEY.public_key()


async def test_the_request_for_the_nodes_identity_is_a_kubelets() -> None:
    request = client_request("n1", KEY)
    assert "annotations" not in request["metadata"], "it is nothing for the manager"
    assert request["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet"
    assert request["spec"]["usages"] == ["digital signature", "client auth"]
    asked = x509.load_pem_x509_csr(base64.b64decode(request["spec"]["request"]))
    assert asked.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
    assert not list(asked.extensions)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ({"type": "Denied", "message": "wrong address"}, "denied: wrong address"),
        ({"type": "Failed", "reason": "SignerValidationFailure"}, "failed: SignerValidationFailure"),
        ({"type": "Denied"}, "denied: no reason given"),
    ],
)
async def test_a_refusal_is_told_with_its_reason(condition: dict[str, str], text: str) -> None:
    with pytest.raises(NotSigned, match=text):
        await signed_certificate(
            ScriptedClient(Signer(conditions=[condition])), client_request("n1", KEY), ignore
        )


async def test_a_request_that_nobody_answers_is_told_of_and_waits_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_request, "PATIENCE", 0.02)
    monkeypatch.setattr(signing_request, "SLOW_POLLS", 0.001)
    signer, told = Signer(), list[str]()

    async def tell(why: str) -> None:
        told.append(why)
        signer.answer = {"certificate": base64.b64encode(b"late").decode()}

    assert await signed_certificate(ScriptedClient(signer), client_request("n1", KEY), tell) == b"late"
    assert told == ["certificate request edgehub-peer-n1-x7 is not answered: who approves it?"]


async def test_after_a_day_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_request, "REQUEST_LIFE", 0.05)
    with pytest.raises(NotSigned, match="was not answered for a day"):
        await signed_certificate(ScriptedClient(Signer()), client_request("n1", KEY), ignore)


async def test_the_names_are_those_of_the_node() -> None:
    named = {"n1": "Hostname", "10.0.0.1": "InternalIP", "n1.example": "ExternalDNS", "fe80::1": "InternalIP"}
    addresses = [{"type": kind, "address": name} for name, kind in named.items()]
    client = ScriptedClient(lambda _: {"status": {"addresses": addresses}})
    assert await node_names(client, "n1") == ("10.0.0.1", "n1")
    with pytest.raises(NotSigned, match="no addresses"):
        await node_names(ScriptedClient(lambda _: {}), "n1")


# -- what the cluster's people are told ---------------------------------------------------------------------------


def test_a_reason_that_comes_again_makes_the_same_event() -> None:
    first, later = (
        event_of("n1", "of this node", "it is denied", datetime(2026, 1, day, tzinfo=UTC)) for day in (1, 2)
    )
    other = event_of("n1", "of this node", "nobody answers", datetime(2026, 1, 1, tzinfo=UTC))
    assert first["metadata"] == later["metadata"] != other["metadata"]
    assert first["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert first["message"] == "the hub has no new certificate of this node: it is denied"


def test_a_long_reason_is_cut_at_what_the_api_takes() -> None:
    message = event_of("n1", "of this node", "x" * 5000, datetime.now(UTC))["message"]
    assert isinstance(message, str)
    assert len(message) == 1024


async def test_it_is_sent_to_the_namespace_of_what_has_none() -> None:
    client = ScriptedClient(lambda _: {})
    await teller(client, "n1", "of this node")("it is denied")
    (asked,) = client.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/default/events")
    assert json.loads(asked.body)["reason"] == "NoCertificate"
