"""The audit log of kube-apiserver: the requests that reached the cloud, for tests to count."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import BinaryIO, Literal

from kube.json_type import Json

type Stage = Literal["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"]

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
"""
"""Every request, without bodies; `Metadata` keeps URI, user and User-Agent."""


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """The target of a request, as the server parsed it; "" for each part that the request does not name."""

    group: str
    version: str
    resource: str
    subresource: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One stage of a request. Events of the same request have the same `id`."""

    id: str
    stage: Stage
    verb: str
    uri: str
    user: str
    user_agent: str
    code: int
    """Status of the response; 0 in the stage RequestReceived, which precedes any response."""
    about: ObjectRef | None = None
    """The request's object; None for a request without objects, such as one for /healthz."""


def read_audit(log: BinaryIO, since: int) -> list[AuditEvent]:
    """Return the events whose lines start at the offset `since` or after it. The offset may lie within a line: it is
    the file's size while the server writes."""
    if not since:
        return parse_audit(log.read())
    log.seek(since - 1)
    return parse_audit(log.read().partition(b"\n")[2])


def parse_audit(log: bytes) -> list[AuditEvent]:
    """Return the events of a log in the order of writing, without a last line that is still being written."""
    complete = log[: log.rfind(b"\n") + 1]
    return [_parse_event(line) for line in complete.splitlines()]


def requests(events: list[AuditEvent]) -> list[AuditEvent]:
    """Return each request once, in order of arrival, at its last recorded stage."""
    latest: dict[str, AuditEvent] = {}
    for event in events:
        latest[event.id] = event
    return list(latest.values())


def _parse_event(line: bytes) -> AuditEvent:
    event = json.loads(line)
    return AuditEvent(
        id=event["auditID"],
        stage=event["stage"],
        verb=event["verb"],
        uri=event["requestURI"],
        user=event["user"].get("username", ""),
        user_agent=event.get("userAgent", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        about=_about(event["objectRef"]) if "objectRef" in event else None,
    )


def _about(ref: Json) -> ObjectRef:
    fields = ("apiGroup", "apiVersion", "resource", "subresource", "namespace", "name")
    return ObjectRef(*(ref.get(field, "") for field in fields))
