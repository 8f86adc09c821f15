"""Reading an audit log."""

from __future__ import annotations

import io
import json
from typing import Any

from tests.cloud.audit import AuditEvent, Stage, parse_audit, read_audit, requests


def line(audit_id: str, stage: str, **more: Any) -> bytes:
    """A line as kube-apiserver writes it, with a few of its other fields."""
    event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": audit_id,
        "stage": stage,
        "requestURI": "/api/v1/services?watch=true",
        "verb": "watch",
        "user": {"username": "system:node:edge-1", "groups": ["system:nodes"]},
        "sourceIPs": ["127.0.0.1"],
        "userAgent": "kube-proxy/v1.36.3",
        **more,
    }
    return json.dumps(event).encode() + b"\n"


def event(audit_id: str, stage: Stage, code: int = 0) -> AuditEvent:
    uri = "/api/v1/services?watch=true"
    return AuditEvent(audit_id, stage, "watch", uri, "system:node:edge-1", "kube-proxy/v1.36.3", code)


def test_stages_with_and_without_an_answer() -> None:
    log = line("a", "RequestReceived") + line(
        "a", "ResponseStarted", responseStatus={"metadata": {}, "code": 200}
    )
    assert parse_audit(log) == [event("a", "RequestReceived"), event("a", "ResponseStarted", 200)]


def test_a_client_may_be_nobody_and_call_itself_nothing() -> None:
    [found] = parse_audit(line("a", "RequestReceived", user={}).replace(b"userAgent", b"other"))
    assert (found.user, found.user_agent) == ("", "")


def test_a_line_that_is_being_written_is_left_out() -> None:
    whole, torn = line("a", "RequestReceived"), line("b", "RequestReceived")[:-5]
    assert parse_audit(whole + torn) == [event("a", "RequestReceived")]
    assert parse_audit(torn) == []
    assert parse_audit(b"") == []


def test_a_mark_within_a_line_is_that_lines_end() -> None:
    first, second = line("a", "RequestReceived"), line("b", "RequestReceived")
    log = first + second
    a, b = event("a", "RequestReceived"), event("b", "RequestReceived")
    for mark in range(len(log) + 1):
        expected = [a, b] if mark == 0 else [b] if mark <= len(first) else []
        assert read_audit(io.BytesIO(log), mark) == expected
    assert read_audit(io.BytesIO(log + first[:20]), len(log) + 10) == []


def test_requests_are_counted_once_in_the_order_of_arrival() -> None:
    events = [
        event("a", "RequestReceived"),
        event("b", "RequestReceived"),
        event("b", "ResponseComplete", 404),
        event("a", "ResponseStarted", 200),
    ]
    assert requests(events) == [event("a", "ResponseStarted", 200), event("b", "ResponseComplete", 404)]
