"""Malformed requests: the hub answers each with the Status of a kube-apiserver, and keeps serving."""

from __future__ import annotations

import json
import socket

import pytest

from tests.cloud.ports import LOOPBACK
from tests.hub.support.process import Hub

SERVICES = "/api/v1/services"


def context(hub: Hub, request: bytes) -> tuple[int, bytes]:
    """Send bytes as they are; the status and the body of the answer."""
    with socket.create_connection((LOOPBACK, hub.port), timeout=10) as conn:
        conn.sendall(request)
        received = b""
        while True:
            chunk = conn.recv(65536)
            received += chunk
            head, separator, body = received.partition(b"\r\n\r\n")
            if not chunk or (separator and len(body) >= _length(head)):
                break
    assert received, "the hub hung up without a word"
    return int(received.split(b" ")[1]), received.partition(b"\r\n\r\n")[2]


def _length(head: bytes) -> int:
    for line in head.lower().splitlines():
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 1 << 30


def request(target: str | bytes, *headers: str | bytes, method: str = "GET") -> bytes:
    lines: list[bytes] = [
        b" ".join([method.encode(), target if isinstance(target, bytes) else target.encode(), b"HTTP/1.1"]),
        b"Host: localhost",
        b"Connection: close",
        *(each if isinstance(each, bytes) else each.encode() for each in headers),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def proxy(query: str, *headers: str) -> bytes:
    """A list of services as kube-proxy, which is filtered: the hub answers it, not the cloud."""
    return request(f"{SERVICES}?{query}", "User-Agent: kube-proxy/v1", *headers)


MALFORMED = {
    "no http": (b"nonsense\r\n\r\n", {400}),
    "bad escape in path": (request("/api/v1/%zz"), {400}),
    "binary path": (request(b"/api/v1/\xff\xfe"), {400}),
    # A pair that cannot be unescaped is left out, as Go does it: what is left is a plain list.
    "bad escape in query": (proxy("watch=%zz"), {200}),
    "label selector": (proxy("labelSelector=a%20b%20c&resourceVersion=0"), {400}),
    "field selector": (proxy("fieldSelector=a&resourceVersion=0"), {400}),
    "unknown field": (proxy("fieldSelector=spec.nonsense%3Dx&resourceVersion=0"), {400}),
    "version is text": (proxy("resourceVersion=x"), {400, 422, 500}),
    "version is negative": (proxy("resourceVersion=-1"), {400, 422, 500}),
    "version of the future": (proxy("resourceVersion=999999999999"), {504}),
    "version too old": (proxy("resourceVersion=1&watch=true&timeoutSeconds=5"), {200}),
    "accept": (proxy("resourceVersion=0", "Accept: text/html"), {406}),
    "continue": (proxy("continue=garbage"), {400, 410}),
    "half a watch list": (proxy("sendInitialEvents=true&watch=true"), {422}),
    "match without version": (proxy("resourceVersionMatch=Exact"), {400, 422}),
    "content length": (request(SERVICES, "Content-Length: x", method="POST"), {400}),
    "a body that kube-apiserver ignores": (request(SERVICES, "Content-Length: 2") + b"{}", {200}),
    "a body for the hub": (proxy("resourceVersion=0", "Content-Length: 2") + b"{}", {200}),
    "a request as body": (
        proxy("resourceVersion=0", "Content-Length: 18") + b"GET / HTTP/1.1\r\n\r\n",
        {200},
    ),
    "smuggling": (request(SERVICES, "Transfer-Encoding: chunked", "Content-Length: 3"), {400}),
}


@pytest.mark.parametrize(("raw", "codes"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_requests(hub: Hub, raw: bytes, codes: set[int]) -> None:
    code, body = context(hub, raw)
    assert code in codes, body
    assert b"Traceback" not in body
    if code >= 400:
        status = json.loads(body)
        assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", code)
    code, _ = context(hub, request("/version"))
    assert code == 200
