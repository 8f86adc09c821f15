"""The expiry of a token, from service accounts' JWTs to text that only looks like one."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.requests.token_expiry import MAX_TOKEN, expiry_of


def jwt(claims: object) -> str:
    parts = (b'{"alg":"RS256"}', json.dumps(claims).encode(), b"signature")
    return "Bearer " + ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize(
    ("authorization", "expiry"),
    [
        (jwt({"exp": 1700000000}), 1700000000.0),
        (jwt({"exp": 17.5, "sub": "x"}), 17.5),
        (jwt({"exp": 0}), 0.0),
        (jwt({"exp": 9}).replace("Bearer", "bearer"), 9.0),
        (jwt({}), None),
        (jwt({"exp": "soon"}), None),
        (jwt({"exp": True}), None),
        (jwt([1]), None),
        (jwt({"exp": 9}).replace("Bearer", "Basic"), None),
        ("Bearer opaque", None),
        ("Bearer a.b.c", None),
        ("Bearer ..", None),
        ("", None),
        (jwt({"exp": 9, "pad": "x" * MAX_TOKEN}), None),
    ],
)
def test_expiries(authorization: str, expiry: float | None) -> None:
    assert expiry_of(authorization) == expiry


@given(st.text(max_size=50), st.binary(max_size=50))
def test_nothing_that_a_client_sends_raises(text: str, claims: bytes) -> None:
    token = f"Bearer a.{base64.urlsafe_b64encode(claims).decode()}.b"
    assert {type(expiry_of(each)) for each in (text, token)} <= {float, type(None)}
