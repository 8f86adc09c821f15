"""Tokens of service accounts: the last one for the same request and identity, while it is valid."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from addons.offline.cached_responses import CachedResponses
from addons.offline.writes.tokens import MIN_VALIDITY, Tokens
from kube.errors import StatusError
from tests.addons.support.copying import copies_in
from tests.addons.support.offline_parts import JSON, PROTOBUF, asked, body_of, in_protobuf
from tests.addons.support.samples import raw
from tests.support.clock import Clock

TARGET = "/api/v1/namespaces/a/serviceaccounts/s/token"
API = "authentication.k8s.io/v1"
EXPIRES = 1_800_000_000
"""2027-01-15T08:00:00Z."""
IN_JSON = raw(
    {
        "apiVersion": API,
        "kind": "TokenRequest",
        "status": {"token": "secret", "expirationTimestamp": "2027-01-15T08:00:00Z"},
    }
)


def in_bytes() -> bytes:
    obj = in_protobuf(API, "TokenRequest", "s")
    obj.fields.child("status").child("expirationTimestamp").set("seconds", EXPIRES)
    return body_of(obj)


@pytest.fixture
def clock() -> Clock:
    return Clock(EXPIRES - MIN_VALIDITY - 1)


@pytest.fixture
async def tokens(tmp_path: Path, clock: Clock) -> AsyncIterator[Tokens]:
    async with copies_in(tmp_path) as copies:
        answers = CachedResponses(copies.access)
        yield Tokens(answers, clock)
        await answers.written()


FORMS: dict[str, tuple[dict[str, str], Callable[[], bytes]]] = {
    "json": ({"content-type": JSON}, lambda: IN_JSON),
    "packed": ({"content-type": JSON, "content-encoding": "gzip"}, lambda: gzip.compress(IN_JSON)),
    "protobuf": ({"content-type": PROTOBUF}, in_bytes),
}


@pytest.mark.parametrize("form", FORMS)
async def test_a_token_is_given_again_as_it_was_until_shortly_before_its_end(
    tokens: Tokens, clock: Clock, form: str
) -> None:
    headers, body = FORMS[form][0], FORMS[form][1]()
    request = asked("POST", TARGET, b"for a pod")
    tokens.keep("", request, headers, body)
    answer = await tokens.answer("", request)
    assert (answer.status, answer.body) == (201, body)
    assert answer.headers == {**headers, "Cache-Control": "no-cache, private"}
    clock.now += 2
    with pytest.raises(StatusError) as refused:
        await tokens.answer("", request)
    assert refused.value.code == 503


async def test_nobody_gets_a_token_for_another_request_or_of_another(tokens: Tokens) -> None:
    tokens.keep("", asked("POST", TARGET, b"for a pod"), {"content-type": JSON}, IN_JSON)
    others = [
        ("alice", b"for a pod", TARGET),
        ("", b"for another", TARGET),
        ("", b"for a pod", TARGET + "?dryRun=All"),
    ]
    for identity, body, target in others:
        with pytest.raises(StatusError) as refused:
            await tokens.answer(identity, asked("POST", target, body))
        assert refused.value.code == 503
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, b"{"),
        (JSON, b'{"apiVersion":"v1","kind":"Status"}'),
        (JSON, IN_JSON.replace(b"2027-01-15T08", b"soon")),
        (PROTOBUF, b"k8s\x00\xff"),
        (PROTOBUF, body_of(in_protobuf("v1", "Pod", "p"))),
        (PROTOBUF, body_of(in_protobuf("v1", "Status", ""))),
        ("text/plain", IN_JSON),
        ("", IN_JSON),
    ],
)
async def test_an_answer_that_cannot_be_read_is_no_token(
    tokens: Tokens, content_type: str, body: bytes
) -> None:
    request = asked("POST", TARGET)
    tokens.keep("", request, {"content-type": content_type}, body)
    with pytest.raises(StatusError) as refused:
        await tokens.answer("", request)
    assert refused.value.code == 503
