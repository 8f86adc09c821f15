"""Errors: the Status for each kind of failure, and the parsing of an upstream's Status."""

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
def test_each_failure_has_its_code_and_reason(
    error: StatusError, code: int, reason: str, message: str
) -> None:
    assert (error.code, error.reason, error.message) == (code, reason, message)
    assert str(error) == message
    written = json.loads(error.to_json())
    assert (written["kind"], written["apiVersion"], written["status"]) == ("Status", "v1", "Failure")
    assert (written["code"], written["reason"], written["message"]) == (code, reason, message)


def test_a_status_is_encoded_like_by_kube_apiserver() -> None:
    error = errors.not_found("endpointslices.discovery.k8s.io", "x")
    assert error.to_json() == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        b'"message":"endpointslices.discovery.k8s.io \\"x\\" not found","reason":"NotFound",'
        b'"details":{"name":"x","group":"discovery.k8s.io","kind":"endpointslices"},"code":404}\n'
    )


def test_a_future_version_gives_reflectors_the_cause() -> None:
    error = errors.too_large_version(999, 12)
    assert (error.code, error.reason) == (504, "Timeout")
    assert error.message == "Timeout: Too large resource version: 999, current: 12"
    assert error.details == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    assert error.retry_after == 1


def test_retry_after_is_set_only_on_retriable_failures() -> None:
    assert errors.unavailable("why").retry_after is None
    assert errors.unavailable("why").details == {}
    assert errors.unavailable("why", retry_after=1).retry_after == 1
    assert errors.too_many_requests("why", 3).details == {"retryAfterSeconds": 3}


@pytest.mark.parametrize(
    "error",
    [
        errors.too_large_version(2, 1),
        errors.not_found("services", "x"),
        errors.internal("why"),
        errors.expired("é\n"),
    ],
)
def test_a_status_survives_encoding_and_decoding(error: StatusError) -> None:
    read = parse_status(error.to_json(), 418)
    assert (read.code, read.reason, read.message) == (error.code, error.reason, error.message)
    assert read.details == error.details
    assert read.retry_after == error.retry_after


@pytest.mark.parametrize("delay", [0, -1, True, "1", None, 1.5, [1]])
def test_a_malformed_retry_delay_is_ignored(delay: object) -> None:
    body = json.dumps({"kind": "Status", "details": {"retryAfterSeconds": delay}}).encode()
    assert parse_status(body, 503).retry_after is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the server responded with the status code 502 but did not return more information"),
        (b"404 page not found\n", "more information: 404 page not found"),
        (b"<html>\r\n\t<b>Bad\x1b[31m Gateway\x00</b>", "more information: <html> <b>Bad [31m Gateway </b>"),
        (b'{"kind":"Service"}', 'more information: {"kind":"Service"}'),
        (b"[1]", "more information: [1]"),
        (b"[" * 5000, "more information: [[["),
        (b"k8s\x00\n\x0c\n\x02v1\x12\x06Status", "more information: k8s v1 Status"),
        (b"\xff\xfe", "more information: \ufffd\ufffd"),
    ],
)
def test_a_body_that_is_no_status_is_wrapped_in_one(body: bytes, message: str) -> None:
    error = parse_status(body, 502)
    assert error.code == 502
    assert message in error.message
    assert len(error.message) < MAX_QUOTED + 100


def test_a_large_body_that_is_no_status_is_truncated() -> None:
    error = parse_status("é".encode() * 1_000_000, 500)
    assert error.message.endswith(": " + "é" * MAX_QUOTED)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(["kind", "code", "reason", "message", "details", "retryAfterSeconds"])


@given(st.dictionaries(FIELDS, JSON).map(lambda status: {"kind": "Status", **status}))
def test_any_received_status_can_be_encoded_again(body: dict[str, object]) -> None:
    error = parse_status(json.dumps(body).encode("utf-8", "surrogatepass"), 500)
    assert 400 <= error.code <= 599
    assert json.loads(error.to_json())["kind"] == "Status"


@given(st.binary())
def test_any_body_is_parsed_as_a_failure(body: bytes) -> None:
    error = parse_status(body, 500)
    assert error.code == 500
    assert json.loads(error.to_json())["code"] == 500
