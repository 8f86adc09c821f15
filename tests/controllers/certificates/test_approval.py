"""Serving certificates of hubs: the parsing of requests, and the approval decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509 import CertificateSigningRequestBuilder, Name

from controllers.certificates import (
    LEFT,
    MAX_REQUEST,
    ServingRequest,
    addresses_of,
    decide,
    node_of,
    parse_wanted,
    read_request,
    read_service,
    read_slice,
)
from controllers.cluster.kinds import Node
from kube.json_type import Json
from tests.controllers.support.requests import (
    misread_by_the_signer,
    named_in_an_unknown_type,
    pem_of,
    request,
)


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"clusterIPs": ["10.96.0.1", "FD00:0::1"]}, {"10.96.0.1", "fd00::1"}),
        ({"clusterIPs": ["None"]}, set()),
        ({"clusterIPs": 7}, set()),
        (None, set()),
    ],
)
def test_addresses_of_a_service_are_read(spec: object, found: set[str]) -> None:
    assert read_service({"spec": spec}) == found


@pytest.mark.parametrize(
    ("obj", "found"),
    [
        ({"endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}]}, {"10.0.0.1", "10.0.0.2"}),
        ({"endpoints": [{"addresses": ["api.example"]}, None, {}]}, set()),
        ({}, set()),
    ],
)
def test_addresses_of_endpoints_are_read(obj: Json, found: set[str]) -> None:
    assert read_slice(obj) == found


@pytest.mark.parametrize("server", ["https://127.0.0.1:6443", "https://[::1]:6443/path"])
async def test_addresses_of_the_server_of_the_manager_are_resolved(server: str) -> None:
    assert await addresses_of(server) <= {"127.0.0.1", "::1"}
    assert await addresses_of(server)


async def test_a_name_that_does_not_resolve_is_an_error() -> None:
    with pytest.raises(OSError, match=r".+"):
        await addresses_of("https://api.invalid:6443")


@pytest.mark.parametrize(
    ("change", "is_of_hub", "is_open"),
    [
        ({"metadata": {"name": "r"}}, False, True),
        ({"metadata": {"name": "r", "annotations": {"edgehub.io/peer": "10269"}}}, False, True),
        ({"status": {"conditions": [{"type": "Denied", "status": "True"}]}}, True, False),
        ({"status": {"certificate": "eA=="}}, True, False),
    ],
)
def test_open_requests_of_hubs_are_recognized(change: dict[str, Any], is_of_hub: bool, is_open: bool) -> None:
    found = read_request({**request("r", b""), **change})
    assert (found.is_of_hub, found.is_open) == (is_of_hub, is_open)


@pytest.mark.parametrize(
    "spec", [None, [], {"request": 7, "groups": "x", "usages": [7]}, {"request": "&&&"}, {"request": "é"}]
)
def test_malformed_requests_are_read_as_absent(spec: object) -> None:
    found = read_request({"metadata": None, "spec": spec, "status": 7})
    assert (found.user, found.groups, found.usages, found.pem) == ("", frozenset(), frozenset(), b"")


def foreign_key() -> bytes:
    made = CertificateSigningRequestBuilder().subject_name(Name([]))
    signed = made.sign(ed25519.Ed25519PrivateKey.generate(), None)
    return signed.public_bytes(serialization.Encoding.PEM)


def tampered() -> bytes:
    """Return a request whose signature ends with the last bytes of another request's."""
    one, other = pem_of("a", ["b"]).splitlines(), pem_of("a", ["b"]).splitlines()
    return b"\n".join([*one[:-2], other[-2], one[-1], b""])


@pytest.mark.parametrize(
    "pem",
    [b"", b"x", foreign_key(), tampered(), named_in_an_unknown_type("system:node:a")],
    ids=["empty", "no PEM", "a key of another kind", "tampered", "a name in an unknown type"],
)
def test_a_malformed_signing_request_is_an_error(pem: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_wanted(pem)


USER = "system:node:n1"
NODE = Node("n1", pool="p", addresses=frozenset({"10.0.0.1", "fd00::1"}))
HELD = {"10.0.0.2": "node n2", "10.96.0.1": "the API server", "lb.example": "the API server"}
GOOD = pem_of(USER, ["10.0.0.1", "n1"])


def holder(name: str) -> str:
    return HELD.get(name, "")


def asked(pem: bytes = GOOD, **changes: object) -> ServingRequest:
    """Return a request of the node as the API server stores it."""
    groups = frozenset({"system:nodes", "system:authenticated"})
    made = replace(read_request(request("r", pem)), user=USER, groups=groups)
    return replace(made, **changes)  # type: ignore[arg-type]  # checked by the dataclass


@pytest.mark.parametrize(
    "pem",
    [
        GOOD,
        pem_of(USER, ["10.0.0.1"]),
        pem_of(USER, ["fd00:0::1"]),
        pem_of(USER, ["n1"]),
        pem_of(USER, ["10.0.0.1", "fd00::1", "n1"]),
        pem_of(USER, ["10.0.0.1", "169.254.2.1"]),
    ],
    ids=["address and name", "address", "IPv6", "the node's name", "all", "the hub's address for pods"],
)
def test_a_hub_gets_a_certificate_for_the_names_of_its_node(pem: bytes) -> None:
    decision = decide(asked(pem), NODE, holder)
    assert (decision.type, decision.reason) == ("Approved", "HubOfNode")
    assert "n1" in decision.message


def test_key_encipherment_is_allowed() -> None:
    usages = frozenset({"server auth", "digital signature", "key encipherment"})
    assert decide(asked(usages=usages), NODE, holder).type == "Approved"


DENIED = {
    "no node": (asked(user="system:serviceaccount:a:b"), "is not a node"),
    "a node outside the group": (asked(groups=frozenset({"system:authenticated"})), "is not a node"),
    "another node's name": (asked(pem_of("system:node:n2", ["10.0.0.1"])), "common name"),
    "no common name": (asked(pem_of("", ["10.0.0.1"])), "common name"),
    "another group": (asked(pem_of(USER, ["10.0.0.1"], ["system:masters"])), "organisation"),
    "a further group": (
        asked(pem_of(USER, ["10.0.0.1"], ["system:nodes", "system:masters"])),
        "organisation",
    ),
    "no group": (asked(pem_of(USER, ["10.0.0.1"], [])), "organisation"),
    "a further attribute": (asked(pem_of(USER, ["10.0.0.1"], unit="x")), "nothing else"),
    "a client's usage": (asked(usages=frozenset({"server auth", "client auth"})), "usages"),
    "no usage of a server": (asked(usages=frozenset({"digital signature"})), "usages"),
    "a service of clouds": (asked(pem_of(USER, ["10.0.0.1", "169.254.169.254"])), "'169.254.169.254'"),
    "another's address": (asked(pem_of(USER, ["10.0.0.1", "10.0.0.9"])), "'10.0.0.9'"),
    "another's name": (asked(pem_of(USER, ["n2"])), "'n2'"),
    "another name": (asked(pem_of(USER, ["n1.example"])), "'n1.example'"),
    "the API server's name": (
        asked(pem_of(USER, ["n1", "kubernetes.default.svc"])),
        "'kubernetes.default.svc'",
    ),
    "a neighbour": (asked(pem_of(USER, ["10.0.0.1", "fe80::1"])), "'fe80::1'"),
    "two forms": (asked(misread_by_the_signer(USER, "n1", "kubernetes.default.svc")), "besides one request"),
    "a wildcard": (asked(pem_of(USER, ["*.example"])), "'*.example'"),
    "no names": (asked(pem_of(USER, [])), "names"),
    "a URI": (asked(pem_of(USER, ["n1"], extra=[x509.UniformResourceIdentifier("a://b")])), "names"),
    "an e-mail address": (asked(pem_of(USER, ["n1"], extra=[x509.RFC822Name("a@b")])), "names"),
    "no request": (asked(b"-----BEGIN CERTIFICATE REQUEST-----"), "cannot be read"),
    "a long request": (asked(GOOD + b"\n" * MAX_REQUEST), "cannot be read"),
}


@pytest.mark.parametrize(("wanted", "why"), DENIED.values(), ids=DENIED.keys())
def test_all_other_requests_are_denied_with_the_reason(wanted: ServingRequest, why: str) -> None:
    decision = decide(wanted, NODE, holder)
    assert decision.type == "Denied"
    assert why in decision.message


@pytest.mark.parametrize("node", [None, replace(NODE, deleting=True)], ids=["absent", "being deleted"])
def test_a_request_of_a_missing_node_is_denied(node: Node | None) -> None:
    decision = decide(asked(), node, holder)
    assert (decision.type, "no node n1" in decision.message) == ("Denied", True)


@pytest.mark.parametrize("written", ["10.0.0.2", "10.96.0.1"], ids=["another node", "the API server"])
def test_an_address_that_another_object_has_too_needs_manual_approval(written: str) -> None:
    thief = replace(NODE, addresses=NODE.addresses | {written})
    decision = decide(asked(pem_of(USER, ["10.0.0.1", written])), thief, holder)
    assert decision.type == LEFT
    assert f"{HELD[written]} has {written}, too" in decision.message


@pytest.mark.parametrize("written", ["169.254.169.254", "fe80::1", "127.0.0.1", "::ffff:10.96.0.1"])
def test_a_cluster_address_in_a_node_status_is_denied(written: str) -> None:
    thief = replace(NODE, addresses=NODE.addresses | {written})
    assert decide(asked(pem_of(USER, ["10.0.0.1", written])), thief, holder).type == "Denied"


@pytest.mark.parametrize(
    "name", ["kubernetes", "kubernetes.default.svc", "x.ns.svc.cluster.local", "lb.example"]
)
def test_a_node_named_like_the_api_server_needs_manual_approval(name: str) -> None:
    user = f"system:node:{name}"
    wanted = asked(pem_of(user, [name]), user=user)
    assert decide(wanted, Node(name), holder).type == LEFT


def test_a_request_that_cannot_be_checked_needs_manual_approval() -> None:
    def unknown(_name: str) -> str:
        raise LookupError("the endpoints are not known")

    decision = decide(asked(), NODE, unknown)
    assert (decision.type, "endpoints are not known" in decision.message) == (LEFT, True)


@pytest.mark.parametrize(("user", "node"), [(USER, "n1"), ("n1", ""), ("system:node:", "")])
def test_the_node_of_a_signing_request_is_read_from_its_user(user: str, node: str) -> None:
    assert node_of(asked(user=user)) == node


def test_text_from_the_request_is_truncated_in_the_message() -> None:
    names = [f"{number}.{'x' * 50}.{'y' * 50}" for number in range(50)]
    assert len(decide(asked(pem_of(USER, names)), NODE, holder).message) < 600
