"""The hub parses a target like a real kube-apiserver, whose audit log shows its result. A difference would be a
security hole: the hub would filter, cache or refuse one request, and the cloud execute another."""

from __future__ import annotations

import http.client
import itertools
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kube.errors import StatusError
from kube.requests.request_info import RequestInfo, parse_request
from tests.cloud.audit import AuditEvent, ObjectRef
from tests.cloud.real import RealCloud

METHODS = ("GET", "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
STEPS = (
    *("api", "apis", "v1", "v1", "apps", "discovery.k8s.io", "watch", "proxy", "namespaces", "namespaces"),
    *("default", "services", "pods", "endpointslices", "nodes", "web-1", "status", "log", "finalize"),
    *(
        "",
        "a%2Fb",
        "%70ods",
        "%2e%2e",
        "..",
        ".",
        "w%20b",
        "x%25y",
        "%C3%A9",
        "+",
        "%",
        "%zz",
        "a;b",
        "a:b",
        "@",
    ),
)
BEGINNINGS = (
    "/api/v1/",
    "/apis/apps/v1/",
    "/api/v1/watch/",
    "/apis/discovery.k8s.io/v1/namespaces/",
    "/",
    "//api/v1/",
)
QUERIES = (
    *(
        "watch=true",
        "watch=1",
        "watch=0",
        "watch",
        "watch=&watch=true",
        "%77atch=1",
        "watch=yes",
        "Watch=true",
    ),
    *(
        "fieldSelector=metadata.name%3Dweb-1",
        "fieldSelector=metadata.name=a,metadata.name=b",
        "fieldSelector=x",
    ),
    *("labelSelector=a%3Db", "resourceVersion=0", "timeoutSeconds=1", "a;b", "%zz=1", "limit=5", "?", "&&"),
)
NUMBERS = itertools.count(1)


@st.composite
def targets(draw: st.DrawFn) -> str:
    path = draw(st.sampled_from(BEGINNINGS)) + "/".join(draw(st.lists(st.sampled_from(STEPS), max_size=6)))
    queries = draw(st.lists(st.sampled_from(QUERIES), max_size=3))
    return f"{path}?{'&'.join(queries)}" if queries else path


class Auditor:
    """Send a request unchanged, as a user without permissions, and find it in the server's audit log."""

    def __init__(self, cloud: RealCloud) -> None:
        self._cloud = cloud
        self._token = cloud.token("default", "request-info")
        context = ssl.create_default_context(cadata=cloud.authority.certificate.decode())
        url = urlsplit(cloud.url)
        assert url.hostname is not None
        self._connection = http.client.HTTPSConnection(url.hostname, url.port, context=context)

    def ask(self, method: str, target: str) -> tuple[int, AuditEvent | None]:
        """Return the server's status, and its parsed request; None if it refused the request before parsing it."""
        mark, number = self._cloud.audit_mark(), f"request-info-{next(NUMBERS)}"
        self._connection.putrequest(method, target)
        for name, value in (
            ("Authorization", f"Bearer {self._token}"),
            ("Audit-ID", number),
            ("Content-Length", "0"),
        ):
            self._connection.putheader(name, value)
        self._connection.endheaders()
        answer = self._connection.getresponse()
        answer.read()
        found = [event for event in self._cloud.audit(mark) if event.id == number]
        return answer.status, found[0] if found else None

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def auditor(real_cloud: RealCloud) -> Iterator[Auditor]:
    made = Auditor(real_cloud)
    yield made
    made.close()


@settings(max_examples=400)
@given(st.sampled_from(METHODS), targets())
@example("GET", "/api/v1/namespaces/default")
@example("DELETE", "/api/v1/namespaces/default/services?fieldSelector=metadata.name%3Da")
@example("GET", "/api/v1/watch/namespaces/default/pods/p")
@example("GET", "/api/v1/watch/pods?fieldSelector=metadata.name%3Dp")
@example("GET", "/api/v1/proxy/namespaces/default/services/web/x/y")
def test_hub_and_server_parse_a_target_equally(auditor: Auditor, method: str, target: str) -> None:
    def about(info: RequestInfo) -> ObjectRef | None:
        if info.type is None:
            return None
        kind, namespace = info.type, info.namespace
        if "/watch/namespaces/" in info.path and kind.resource == "namespaces":
            # The server also treats a watched Namespace's name as its namespace, which would be a scope for a view.
            namespace = namespace or info.name
        return ObjectRef(kind.group, kind.version, kind.resource, info.subresource, namespace, info.name)

    status, event = auditor.ask(method, target)
    try:
        info = parse_request(method, target)
    except StatusError:
        return  # stricter than the server is safe: the request is not forwarded
    assert event is not None, f"the server refused with {status} what the hub understands"
    assert (info.verb, about(info)) == (event.verb, event.about)
