"""Requests of hubs are approved and signed, or denied, on the real API server; those of kubelets are not handled."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography import x509

from controllers.certificates import open_requests, read_request
from kube.json_type import Json
from tests.cloud.rest import RestClient
from tests.controllers.support.requests import REQUESTS, misread_by_the_signer, pem_of, request
from tests.controllers.support.scene import Scene

pytestmark = [pytest.mark.real]


def client_of(scene: Scene, node: str) -> RestClient:
    """Return a client with the node's own certificate, as its hub has it."""
    return scene.cloud.client(scene.cloud.authority.issue_node(node))


def conditions(obj: Json) -> list[tuple[str, str]]:
    return [(each["type"], each["reason"]) for each in obj.get("status", {}).get("conditions", [])]


def test_a_hub_gets_its_certificate(scene: Scene, manager: object) -> None:
    node = scene.node(address="10.0.7.1")
    name = scene.name("request")
    client_of(scene, node).post(REQUESTS, request(name, pem_of(f"system:node:{node}", ["10.0.7.1"])))
    signed = scene.sees(REQUESTS, name, lambda obj: bool(obj["status"].get("certificate")))
    assert conditions(signed) == [("Approved", "HubOfNode")]
    certificate = x509.load_pem_x509_certificate(base64.b64decode(signed["status"]["certificate"]))
    assert certificate.subject.rfc4514_string() == f"CN=system:node:{node},O=system:nodes"


def test_a_request_for_more_names_than_the_nodes_is_denied(scene: Scene, manager: object) -> None:
    node, name = scene.node(address="10.0.7.2"), scene.name("request")
    pem = pem_of(f"system:node:{node}", ["10.0.7.2", "10.0.7.3"])
    client_of(scene, node).post(REQUESTS, request(name, pem))
    denied = scene.sees(REQUESTS, name, lambda obj: bool(conditions(obj)))
    assert conditions(denied) == [("Denied", "NotTheNodes")]
    assert "certificate" not in denied["status"]


@pytest.mark.parametrize("whose", ["a node without a pool", "ClusterIP", "endpoints"])
def test_an_address_of_another_node_needs_manual_approval(scene: Scene, manager: object, whose: str) -> None:
    def condition_message(name: str) -> str:
        """Return the text of the Events about a request."""
        query = {"fieldSelector": f"involvedObject.name={name}"}
        found = scene.admin.request("GET", "/api/v1/namespaces/default/events", query=query).json()["items"]
        return " ".join(each["message"] for each in found)

    if whose == "ClusterIP":
        address = scene.admin.get("/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"]
    elif whose == "endpoints":
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        address = scene.admin.get(f"{slices}/kubernetes")["endpoints"][0]["addresses"][0]
    else:
        address = "10.0.7.5"
        other = scene.node(address=address)
    node, name = scene.node(pool=scene.pool(), address=address), scene.name("request")
    pem = pem_of(f"system:node:{node}", [address])
    client_of(scene, node).post(REQUESTS, request(name, pem))
    scene.until(lambda: f"has {address}, too" in condition_message(name))
    assert conditions(scene.admin.get(f"{REQUESTS}/{name}")) == []
    if whose == "a node without a pool":
        scene.set_node(other, address="10.0.7.6")
        assert scene.sees(REQUESTS, name, lambda obj: conditions(obj) == [("Approved", "HubOfNode")])


def test_a_request_that_the_signer_would_parse_differently_is_denied(scene: Scene, manager: object) -> None:
    node, name = scene.node(address="10.0.7.7"), scene.name("request")
    pem = misread_by_the_signer(f"system:node:{node}", node, "kubernetes.default.svc")
    client_of(scene, node).post(REQUESTS, request(name, pem))
    denied = scene.sees(REQUESTS, name, lambda obj: bool(conditions(obj)))
    assert conditions(denied) == [("Denied", "NotTheNodes")]


def test_a_kubelets_request_is_not_handled(scene: Scene, manager: object) -> None:
    node = scene.node(address="10.0.7.4")
    client, pem = client_of(scene, node), pem_of(f"system:node:{node}", ["10.0.7.4"])
    kubelets, hubs = scene.name("request"), scene.name("request")
    client.post(REQUESTS, request(kubelets, pem, annotations={}))
    client.post(REQUESTS, request(hubs, pem))
    scene.sees(REQUESTS, hubs, lambda obj: bool(conditions(obj)))
    assert conditions(scene.admin.get(f"{REQUESTS}/{kubelets}")) == []


@pytest.mark.parametrize(
    ("change", "wanted"),
    [({}, True), ({"metadata": {}}, False), ({"status": {"conditions": [{"type": "Approved"}]}}, False)],
)
def test_only_changes_that_affect_decisions_enqueue_requests(change: dict[str, Any], wanted: bool) -> None:
    facts = read_request({**request("r", b""), **change})
    assert bool(list(open_requests(("", "r"), None, facts))) is wanted
