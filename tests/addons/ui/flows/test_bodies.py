"""Copies of relayed bodies: small ones complete, large lists as a table, Secrets without values."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from addons.ui.flows import bodies
from addons.ui.flows.bodies import (
    MAX_ACTIVE,
    MAX_SHOWN_BODY,
    MAX_TABLE,
    NOTE,
    ByteBudget,
    Copy,
    decoded,
    keep,
)
from addons.ui.flows.interventions import TEXT_BODY
from addons.ui.masking import DEFAULT_VISIBILITY, Visible
from kube.wire.codec import codec_for
from kube.wire.codec_base import ListMeta
from kube.wire.encoding import Encoding
from tests.addons.support.samples import raw, service
from tests.kube.support import recorded

JSON = Encoding.JSON


def answer(**headers: str) -> http.Response:
    return http.Response.make(200, b"", {"Content-Type": JSON, **headers})


def large_list(count: int = 3_000) -> bytes:
    items = [
        raw(service(f"web-{number}", number + 1, annotations={"x": "y" * 300})) for number in range(count)
    ]
    return bytes(codec_for(JSON).encode_list("v1", "Service", ListMeta(9_000), items))


@pytest.mark.parametrize(
    ("then", "passed"),
    [(True, b"abc"), (lambda piece: piece * 2, b"abcabc"), (lambda piece: [piece, b"!"], b"abc!")],
)
def test_a_streamed_body_is_copied(then: bodies.StreamFunction, passed: bytes) -> None:
    copy = Copy(then, ByteBudget(MAX_ACTIVE))
    said = copy(b"abc")
    assert (said if isinstance(said, bytes) else b"".join(said)) == passed
    assert copy.end() == passed
    assert Copy(then, ByteBudget(MAX_ACTIVE)).joined(b"abc") == passed


def test_a_body_beyond_the_bound_is_relayed_without_a_copy() -> None:
    active = ByteBudget(MAX_ACTIVE)
    copy = Copy(True, active)
    piece = b"x" * (MAX_TABLE // 4)
    for _ in range(5):
        assert copy(piece) is piece
    assert (copy.size, copy.end(), active.taken) == (5 * len(piece), None, 0)


def test_all_bodies_together_are_bounded() -> None:
    active = ByteBudget(MAX_ACTIVE)
    piece = b"x" * (MAX_TABLE // 2)
    copies = [Copy(True, active) for _ in range(MAX_ACTIVE // len(piece) + 3)]
    for copy in copies:
        copy(piece)
    assert active.taken == MAX_ACTIVE
    assert sum(copy.end() is None for copy in copies) == 3
    assert active.taken == 0


def retained() -> Iterator[tuple[bytes | None, bool, str, str]]:
    """Return a body, whether it may contain secrets, the note about it, and the displayed text."""
    secret = raw({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "c2VjcmV0"}})
    yield b'{"a": 1}', False, "", '{"a": 1}'
    yield large_list(), False, "kept as a table", "default/web-17 # resourceVersion 18, "
    yield b"x" * (MAX_SHOWN_BODY + 1), False, "too many to keep", "bytes)"
    yield None, False, "too many to keep", "12345 bytes"
    yield secret, True, "secrets are hidden", "k: (hidden, 8 characters)"
    yield b"not an object c2VjcmV0", True, "secrets are hidden", "bytes)"
    yield b"", True, "", ""


@pytest.mark.parametrize(("body", "is_secret", "said", "shown"), list(retained()))
def test_the_retained_body_of_a_flow_hides_secrets(
    body: bytes | None, is_secret: bool, said: str, shown: str
) -> None:
    message = answer()
    size = 12345 if body is None else len(body)
    found = keep(message, body, size, is_secret=is_secret, visible=DEFAULT_VISIBILITY)
    assert said in found
    text = (message.content or b"").decode()
    assert shown in text
    assert "c2VjcmV0" not in text
    assert text.startswith(NOTE.decode()) == bool(said and body != b"")


@pytest.mark.parametrize(
    "body", [b"not an object", raw({"apiVersion": "v1", "kind": "Secret", "metadata": {}})]
)
def test_visible_secrets_are_not_reported_as_hidden(body: bytes) -> None:
    message = answer()
    found = keep(message, body, len(body), is_secret=True, visible=Visible(secrets=True))
    assert "secrets are hidden" not in found + (message.text or "")


def test_a_compressed_body_is_shown_decompressed() -> None:
    secret = raw({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "c2VjcmV0"}})
    message = answer(**{"Content-Encoding": "gzip"})
    keep(message, gzip.compress(secret), len(secret), is_secret=True, visible=DEFAULT_VISIBILITY)
    assert "k: (hidden, 8 characters)" in (message.text or "")


@pytest.mark.parametrize("is_secret", [True, False])
@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(bytes(MAX_TABLE + 1)) + bytes(MAX_SHOWN_BODY)),
        ("gzip", b"x" * (MAX_SHOWN_BODY + 1)),
        ("br", b"x" * (MAX_SHOWN_BODY + 1)),
    ],
    ids=["a bomb", "no gzip", "another coding"],
)
def test_a_body_is_decompressed_up_to_a_bound(coding: str, body: bytes, is_secret: bool) -> None:
    """mitmproxy decompresses 16 MiB to 16 GiB."""
    message = answer(**{"Content-Encoding": coding})
    assert keep(message, body, len(body), is_secret=is_secret, visible=DEFAULT_VISIBILITY)
    assert (message.text or "").endswith(f"({len(body)} bytes)\n")


@pytest.mark.parametrize("packed", [False, True])
def test_protobuf_bodies_are_text_in_a_saved_file_and_unchanged_in_the_hub(packed: bool) -> None:
    body = recorded.body("services.single", Encoding.PROTOBUF)
    body = gzip.compress(body) if packed else body
    flow = tflow.tflow(resp=answer(**({"Content-Encoding": "gzip"} if packed else {})))
    assert flow.response is not None
    for message in (flow.request, flow.response):
        message.headers["Content-Type"] = Encoding.PROTOBUF
        message.data.content = body if message is flow.response or not packed else b"no protobuf"
    with decoded(flow, DEFAULT_VISIBILITY):
        shown = flow.response.content
        assert shown is not None
        assert shown.startswith(NOTE + f"{len(body)} bytes of protobuf\n".encode())
        assert b"kind: Service\n" in shown
        assert (TEXT_BODY in flow.metadata) is not packed, "a request whose body is a text is not sent again"
    assert (flow.response.raw_content, TEXT_BODY in flow.metadata) == (body, False)


def test_a_body_not_of_kubernetes_is_unmodified_in_a_saved_file() -> None:
    flow = tflow.tflow(resp=answer())
    with decoded(flow, DEFAULT_VISIBILITY):
        assert flow.request.content == b"content"
