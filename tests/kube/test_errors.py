"""Errors: what a client gets for each kind of failure, and what is read from an upstream's."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import errors
from kube.errors import MAX_QUOTED, StatusError, parse_status


@pytest.mark.parametrize(
    ("error", "code", "reason", "message"),
    [
        (errors.bad_request("why"), 400, "BadRequest", "why"),
        (errors.unauthorized("Unauthorized"), 401, "Unauthorized", "Unauthorized"),
        (errors.forbidden("why"), 403, "Forbidden", "why"),
        (errors.not_found("services", "x"), 404, "NotFound", 'services "x" not found'),
        (errors.method_not_supported("why"), 405, "MethodNotAllowed", "why"),
        (errors.not_acceptable("why"), 406, "NotAcceptable", "why"),
        (errors.conflict("why"), 409, "Conflict", "why"),
        (errors.expired("why"), 410, "Expired", "why"),
        (errors.entity_too_large("why"), 413, "RequestEntityTooLarge", "Request entity too large: why"),
        (errors.unsupported_media_type("why"), 415, "UnsupportedMediaType", "why"),
        (errors.invalid("why"), 422, "Invalid", "why"),
        (errors.too_many_requests("why", 2), 429, "TooManyRequests", "why"),
        (errors.internal("why"), 500, "InternalError", "Internal error occurred: why"),
        (errors.unavailable("why"), 503, "ServiceUnavailable", "why"),
        (errors.timeout("why"), 504, "Timeout", "Timeout: why"),
    ],
)
def test_failures(error: StatusError, code: int, reason: str, message: str) -> None:
    assert (error.code, error.reason, error.message) == (code, reason, message)
    assert str(error) == message
    written = json.loads(error.to_json())
    assert (written["kind"], written["apiVersion"], written["status"]) == ("Status", "v1", "Failure")
    assert (written["code"], written["reason"], written["message"]) == (code, reason, message)


def test_a_status_is_written_as_a_kube_apiserver_writes_it() -> None:
    error = errors.not_found("endpointslices.discovery.k8s.io", "x")
    assert error.to_json() == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        b'"message":"endpointslices.discovery.k8s.io \\"x\\" not found","reason":"NotFound",'
        b'"details":{"name":"x","group":"discovery.k8s.io","kind":"endpointslices"},"code":404}\n'
    )


def test_waiting_is_asked_for_only_where_it_is_meant() -> None:
    assert errors.unavailable("why").retry_after is None
    assert errors.unavailable("why").details == {}
    assert errors.unavailable("why", retry_after=1).retry_after == 1
    assert errors.too_many_requests("why", 3).details == {"retryAfterSeconds": 3}


def test_a_large_foreign_body_is_cut() -> None:
    error = parse_status("é".encode() * 1_000_000, 500)
    assert error.message.endswith(": " + "é" * MAX_QUOTED)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(["kind", "code", "reason", "message", "details", "retryAfterSeconds"])


@given(st.dictionaries(FIELDS, JSON).map(lambda status: {"kind": "Status", **status}))
def test_any_status_can_be_sent_on(body: dict[str, object]) -> None:
    error = parse_status(json.dumps(body).encode("utf-8", "surrogatepass"), 500)
    assert 400 <= error.code <= 599
    assert json.loads(error.to_json())["kind"] == "Status"


@given(st.binary())
def test_any_body_becomes_a_failure(body: bytes) -> None:
    error = parse_status(body, 500)
    assert error.code == 500
    assert json.loads(error.to_json())["code"] == 500
