"""Where mitmproxy answers by itself, the client gets a Status."""

from __future__ import annotations

import json

import pytest

from addons.requests.exchange.error_responses import error_body, error_response


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (400, "BadRequest"),
        (413, "RequestEntityTooLarge"),
        (502, "ServiceUnavailable"),
        (504, "ServiceUnavailable"),
    ],
)
def test_mitmproxys_own_errors_are_statuses(code: int, reason: str) -> None:
    head, _, body = error_response(code, "why\nit <b>failed</b>").partition(b"\r\n\r\n")
    said = json.loads(body)
    assert (said["kind"], said["status"], said["code"], said["reason"]) == ("Status", "Failure", code, reason)
    assert head.startswith(b"HTTP/1.1 %d " % code)
    lines = head.split(b"\r\n")
    assert b"Content-Type: application/json" in lines
    assert b"Content-Length: %d" % len(body) in lines
    assert json.loads(error_body(code, "why"))["code"] == code


def test_a_code_without_a_phrase_is_answered_too() -> None:
    assert error_response(599).startswith(b"HTTP/1.1 599 Error\r\n")


def test_a_long_reason_is_cut_and_stays_on_one_line() -> None:
    said = json.loads(error_body(502, "a\nb " * 1000))
    assert "\n" not in said["message"]
    assert len(said["message"]) < 300
