"""Continue tokens: encoded like by kube-apiserver, and refused with its messages."""

from __future__ import annotations

import base64

import pytest

from kube.requests.continue_tokens import LATEST, ContinueToken, parse_continue


def token(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize("version", [7, LATEST])
def test_a_token_has_kube_apiservers_format(version: int) -> None:
    found = ContinueToken(version, "default/web\0")
    assert found.encode() == token(f'{{"v":"meta.k8s.io/v1","rv":{version},"start":"default/web\\u0000"}}')
    assert parse_continue(found.encode()) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", ""),
        ("x", ""),
        ("\ud800", ""),
        (token("[]"), ": server does not recognize this encoded version "),
        (
            token('{"v":"meta.k8s.io/v3","rv":1,"start":"a"}'),
            ": server does not recognize this encoded version meta.k8s.io/v3",
        ),
        (
            token('{"v":"meta.k8s.io/v1","start":"a"}'),
            ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (token('{"v":"meta.k8s.io/v1","rv":1}'), ": encoded start key empty (version meta.k8s.io/v1)"),
        (token('{"v":"meta.k8s.io/v1","rv":"1","start":"a"}'), ""),
        (token('{"v":"meta.k8s.io/v1","rv":1,"start":"../a"}'), ': "../a"'),
        (token('{"v":"meta.k8s.io/v1","rv":1,"start":"a//b"}'), ': "a//b"'),
    ],
)
def test_a_malformed_continue_token_is_a_value_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="invalid continue token: continue key is not valid") as caught:
        parse_continue(text)
    assert message in str(caught.value)
