"""The fields that the manager reads in a certificate request, and garbage in their place."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509 import CertificateSigningRequestBuilder, Name

from controllers.certificates.serving_request import parse_wanted, read_request
from tests.controllers.support.requests import pem_of, request


@pytest.mark.parametrize(
    ("change", "is_of_hub", "is_open"),
    [
        ({"metadata": {"name": "r"}}, False, True),
        ({"metadata": {"name": "r", "annotations": {"edgehub.io/peer": "10269"}}}, False, True),
        ({"status": {"conditions": [{"type": "Denied", "status": "True"}]}}, True, False),
        ({"status": {"certificate": "eA=="}}, True, False),
    ],
)
def test_which_requests_are_a_hubs_and_open(change: dict[str, Any], is_of_hub: bool, is_open: bool) -> None:
    found = read_request({**request("r", b""), **change})
    assert (found.is_of_hub, found.is_open) == (is_of_hub, is_open)


@pytest.mark.parametrize(
    "spec", [None, [], {"request": 7, "groups": "x", "usages": [7]}, {"request": "&&&"}, {"request": "é"}]
)
def test_garbage_is_read_as_absent(spec: object) -> None:
    found = read_request({"metadata": None, "spec": spec, "status": 7})
    assert (found.user, found.groups, found.usages, found.pem) == ("", frozenset(), frozenset(), b"")


def foreign_key() -> bytes:
    made = CertificateSigningRequestBuilder().subject_name(Name([]))
    signed = made.sign(ed25519.Ed25519PrivateKey.generate(), None)
    return signed.public_bytes(serialization.Encoding.PEM)


def tampered() -> bytes:
    """The last bytes of the signature belong to another request."""
    one, other = pem_of("a", ["b"]).splitlines(), pem_of("a", ["b"]).splitlines()
    return b"\n".join([*one[:-2], other[-2], one[-1], b""])


@pytest.mark.parametrize(
    "pem",
    [b"", b"x", foreign_key(), tampered()],
    ids=["empty", "no PEM", "a key of another kind", "tampered"],
)
def test_what_is_no_request_is_an_error(pem: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_wanted(pem)
