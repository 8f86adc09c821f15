"""Whole answers: an object in its encoding, a Status with its delay; and the names of the hub's own headers."""

from __future__ import annotations

import orjson
import pytest

from addons.requests import headers
from addons.requests.answers import object_answer, status_answer
from kube.errors import StatusError, forbidden, unavailable
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from tests.addons.support.samples import raw, service


def test_an_object_is_the_whole_answer_and_not_cached_on_the_way() -> None:
    found = object_answer(Encoded.read(codec_for(Encoding.JSON), raw(service("web", 3))), 201)
    assert (found.status, found.headers["Content-Type"]) == (201, "application/json")
    assert found.headers["Cache-Control"] == "no-cache, private"
    assert isinstance(found.body, bytes)
    assert orjson.loads(found.body) == service("web", 3)


@pytest.mark.parametrize(
    ("error", "code", "delay"),
    [(forbidden("no"), 403, None), (unavailable("later", retry_after=3), 503, "3")],
)
def test_a_status_says_when_to_come_back(error: StatusError, code: int, delay: str | None) -> None:
    found = status_answer(error)
    assert (found.status, found.headers.get("Retry-After")) == (code, delay)
    assert isinstance(found.body, bytes)
    assert orjson.loads(found.body)["code"] == code


def test_names_differ_and_are_lower_case() -> None:
    """RFC 9113, section 8.2.1: a field name with upper-case letters makes a request malformed."""
    names = [value for key, value in vars(headers).items() if key.endswith("_HEADER")]
    assert len(set(names)) == len(names) > 0
    assert all(name == name.lower() and name.startswith("x-edgehub-") for name in names)
