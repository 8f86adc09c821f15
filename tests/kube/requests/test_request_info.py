"""Parsing of a request's method and target. Except where noted, kube-apiserver 1.36 gives the same result."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.errors import StatusError
from kube.requests.request_info import ListOptions, RequestInfo, ResourceType, parse_request

SERVICES = ResourceType("", "v1", "services")
PODS = ResourceType("", "v1", "pods")
NAMESPACES = ResourceType("", "v1", "namespaces")
SLICES = ResourceType("discovery.k8s.io", "v1", "endpointslices")


type Refusal = tuple[int, str]


def outcome(method: str, target: str) -> RequestInfo | Refusal:
    """Return the parsed request, or the code and message of the refusal."""
    try:
        return parse_request(method, target)
    except StatusError as error:
        return error.code, error.message


def test_the_resource_type_is_parsed_from_the_path() -> None:
    assert (SERVICES.api_version, SERVICES.group_resource) == ("v1", "services")
    assert (SLICES.api_version, SLICES.group_resource) == (
        "discovery.k8s.io/v1",
        "endpointslices.discovery.k8s.io",
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (SERVICES.path(), "/api/v1/services"),
        (SERVICES.path("default"), "/api/v1/namespaces/default/services"),
        (SERVICES.path("default", "x"), "/api/v1/namespaces/default/services/x"),
        (SLICES.path(name="x"), "/apis/discovery.k8s.io/v1/endpointslices/x"),
        (NAMESPACES.path("default", "default"), "/api/v1/namespaces/default"),
        (
            ResourceType("rbac", "v1", "roles").path("n", "system:a/b?c"),
            "/apis/rbac/v1/namespaces/n/roles/system:a%2Fb%3Fc",
        ),
    ],
)
def test_paths_are_parsed(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize(
    ("method", "target", "verb", "resource", "namespace", "name", "subresource"),
    [
        ("GET", "/api/v1/services", "list", SERVICES, "", "", ""),
        ("GET", "/api/v1/services/", "list", SERVICES, "", "", ""),
        ("GET", "/api/v1/services?watch=1", "watch", SERVICES, "", "", ""),
        ("GET", "/api/v1/services?watch", "watch", SERVICES, "", "", ""),
        ("GET", "/api/v1/services?watch=foo", "watch", SERVICES, "", "", ""),
        ("GET", "/api/v1/services?watch=0", "list", SERVICES, "", "", ""),
        ("GET", "/api/v1/services?watch=FALSE&watch=1", "list", SERVICES, "", "", ""),
        ("GET", "/api/v1/namespaces/default/services", "list", SERVICES, "default", "", ""),
        ("GET", "/api/v1/namespaces//services", "list", SERVICES, "", "", ""),
        ("GET", "/api/v1/namespaces/default/services/x", "get", SERVICES, "default", "x", ""),
        ("GET", "/api/v1/namespaces/default/services/x//", "get", SERVICES, "default", "x", ""),
        ("GET", "/api/v1/namespaces/default/services/x?watch=1", "get", SERVICES, "default", "x", ""),
        ("GET", "/api/v1/namespaces/default/pods/x/log", "get", PODS, "default", "x", "log"),
        ("POST", "/api/v1/namespaces/default/pods/x/exec", "create", PODS, "default", "x", "exec"),
        ("GET", "/api/v1/namespaces/default/pods/x/proxy/a/b", "get", PODS, "default", "x", "proxy"),
        ("GET", "/apis/discovery.k8s.io/v1/endpointslices", "list", SLICES, "", "", ""),
        ("GET", "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices/x", "get", SLICES, "n", "x", ""),
        ("POST", "/api/v1/namespaces/default/services", "create", SERVICES, "default", "", ""),
        ("PUT", "/api/v1/namespaces/default/services/x/status", "update", SERVICES, "default", "x", "status"),
        ("PATCH", "/api/v1/namespaces/default/services/x", "patch", SERVICES, "default", "x", ""),
        ("DELETE", "/api/v1/namespaces/default/services/x", "delete", SERVICES, "default", "x", ""),
        ("DELETE", "/api/v1/namespaces/default/services", "deletecollection", SERVICES, "default", "", ""),
        ("HEAD", "/api/v1/namespaces/default/pods/x/proxy", "get", PODS, "default", "x", "proxy"),
        ("OPTIONS", "/api/v1/services", "", SERVICES, "", "", ""),
        ("get", "/api/v1/services", "", SERVICES, "", "", ""),
        # namespaces are both a scope and a resource
        ("GET", "/api/v1/namespaces", "list", NAMESPACES, "", "", ""),
        ("GET", "/api/v1/namespaces/kube-system", "get", NAMESPACES, "kube-system", "kube-system", ""),
        ("PUT", "/api/v1/namespaces/n/finalize", "update", NAMESPACES, "n", "n", "finalize"),
        ("GET", "/api/v1/namespaces/n/status", "get", NAMESPACES, "n", "n", "status"),
        ("GET", "/api/v1/namespaces?fieldSelector=metadata.name%3Dn", "list", NAMESPACES, "", "n", ""),
        # a field selector may name one object
        ("GET", "/api/v1/services?fieldSelector=metadata.name%3Dx", "list", SERVICES, "", "x", ""),
        (
            "GET",
            "/api/v1/services?watch=1&fieldSelector=a=1,metadata.name==x",
            "watch",
            SERVICES,
            "",
            "x",
            "",
        ),
        ("GET", "/api/v1/services?fieldSelector=metadata.name!%3Dx", "list", SERVICES, "", "", ""),
        ("GET", "/api/v1/services?fieldSelector=metadata.name%3Da%252Fb", "list", SERVICES, "", "", ""),
        ("GET", "/api/v1/services?fieldSelector=metadata.name%3D..", "list", SERVICES, "", "", ""),
        ("GET", "/api/v1/services?fieldSelector=metadata.name", "list", SERVICES, "", "", ""),
        (
            "DELETE",
            "/api/v1/services?fieldSelector=metadata.name%3Dx",
            "deletecollection",
            SERVICES,
            "",
            "",
            "",
        ),
        # the deprecated verbs in the path
        ("GET", "/api/v1/watch/services", "watch", SERVICES, "", "", ""),
        ("GET", "/api/v1/watch/services?watch=false", "watch", SERVICES, "", "", ""),
        ("GET", "/api/v1/watch/namespaces/default/services/x", "watch", SERVICES, "default", "x", ""),
        ("GET", "/api/v1/proxy/namespaces/default/services/x/y", "proxy", SERVICES, "default", "x", ""),
        # the path is unescaped before it is parsed
        ("GET", "/api%2fv1%2Fservices", "list", SERVICES, "", "", ""),
        ("GET", "/api/v1/%73ervices%2f", "list", SERVICES, "", "", ""),
        ("GET", "/api/v1/namespaces/default%2Fservices", "list", SERVICES, "default", "", ""),
        ("GET", "/api/v1/namespaces/default/services/a+b", "get", SERVICES, "default", "a+b", ""),
        ("GET", "/api/v1/namespaces/default/services/%C3%A9", "get", SERVICES, "default", "é", ""),
        ("GET", "/api/v1/services;x=1", "list", ResourceType("", "v1", "services;x=1"), "", "", ""),
        ("GET", "/api/v1/services#x", "list", ResourceType("", "v1", "services#x"), "", "", ""),
        ("GET", "/api/v1//services", "get", ResourceType("", "v1", ""), "", "services", ""),
        ("GET", "//api/v1/services", "list", SERVICES, "", "", ""),
    ],
)
def test_requests_for_objects_are_recognized(
    method: str, target: str, verb: str, resource: ResourceType, namespace: str, name: str, subresource: str
) -> None:
    info = parse_request(method, target)
    assert (info.method, info.verb, info.type) == (method, verb, resource)
    assert (info.namespace, info.name, info.subresource) == (namespace, name, subresource)
    assert info.options.watch is (verb == "watch")


@pytest.mark.parametrize(
    "path",
    [
        *["/", "/api", "/api/", "/api//", "/api/v1", "/api/v1/", "/API/v1/services", "/x/api/v1/services"],
        *["/apis", "/apis/apps", "/apis/apps/v1", "/apis/apps/v1//"],
        *["/version", "/healthz/etcd/x", "/openapi/v3/apis/apps/v1"],
    ],
)
def test_a_request_outside_the_api_has_only_a_path(path: str) -> None:
    info = parse_request("POST", f"{path}?timeout=10s")
    assert info == RequestInfo("POST", path, "post", None, "", "", "", ListOptions(), 10)


def test_the_path_is_decoded_and_has_no_query() -> None:
    assert parse_request("GET", "/openapi/v3/a%2Bb?hash=1").path == "/openapi/v3/a+b"


def test_all_list_options_are_parsed() -> None:
    info = parse_request(
        "GET",
        "/api/v1/services?labelSelector=%21a&fieldSelector=spec.clusterIP%21%3DNone&resourceVersion=12"
        "&resourceVersionMatch=NotOlderThan&limit=500&continue=abc&timeoutSeconds=494&allowWatchBookmarks=true"
        "&sendInitialEvents=true&watch=true&timeout=8m14s&pretty=1",
    )
    assert info.options == ListOptions(
        label_selector="!a",
        field_selector="spec.clusterIP!=None",
        resource_version="12",
        resource_version_match="NotOlderThan",
        limit=500,
        continue_token="abc",
        timeout_seconds=494,
        allow_bookmarks=True,
        send_initial_events=True,
        watch=True,
    )


def test_a_get_has_only_the_resource_version_option() -> None:
    target = "/api/v1/nodes/n?resourceVersion=0&timeout=10s&limit=abc&labelSelector=%ff&watch=true"
    info = parse_request("GET", target)
    assert (info.verb, info.options, info.timeout) == ("get", ListOptions(resource_version="0"), 10)


def test_the_name_of_an_old_watch_becomes_a_field_selector() -> None:
    path = "/api/v1/watch/namespaces/n/services/x"
    assert parse_request("GET", path).options.field_selector == "metadata.name=x"
    assert parse_request("GET", f"{path}%3D,y").options.field_selector == r"metadata.name=x\=\,y"
    both = "fieldSelector=metadata.name%3Dx,spec.type%3DNodePort"
    assert (
        parse_request("GET", f"{path}?{both}").options.field_selector == "metadata.name=x,spec.type=NodePort"
    )
    mismatch = (400, "fieldSelector metadata.name doesn't match requested name")
    assert outcome("GET", f"{path}?fieldSelector=metadata.name%3Dy") == mismatch
    assert outcome("GET", f"{path}?fieldSelector=spec.type%3DNodePort") == mismatch


def test_the_name_of_a_watched_namespace_is_not_a_scope() -> None:
    info = parse_request("GET", "/api/v1/watch/namespaces/kube-system")
    assert (info.verb, info.type, info.namespace, info.name) == ("watch", NAMESPACES, "", "kube-system")
    assert info.options.field_selector == "metadata.name=kube-system"


@pytest.mark.parametrize(
    ("target", "seconds"),
    [
        ("/api/v1/services?timeout=1m30s", 90),
        ("/api/v1/services?timeout=1.5s&timeout=abc", 1.5),
        ("/api/v1/services", None),
        ("/api/v1/services?timeout=", None),
        ("/api/v1/services?timeout=0", None),
        ("/api/v1/services?timeout=-1s", None),
        # long-running requests have no timeout, and the parameter is ignored
        ("/api/v1/services?watch=1&timeout=abc", None),
        ("/api/v1/watch/services?timeout=abc", None),
        ("/api/v1/namespaces/n/pods/p/log?timeout=abc", None),
        ("/api/v1/namespaces/n/pods/p/exec?timeout=abc", None),
        ("/debug/pprof/profile?timeout=abc", None),
    ],
)
def test_the_timeout_parameter_is_parsed(target: str, seconds: float | None) -> None:
    assert parse_request("GET", target).timeout == seconds


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("", "invalid URI for request"),
        ("*", "invalid URI for request"),
        ("api/v1/services", "invalid URI for request"),
        ("http://x/api/v1/services", "invalid URI for request"),
        ("/api/v1/serv ices", "net/url: invalid control character in URL"),
        ("/api/v1/services?limit=\0", "net/url: invalid control character in URL"),
        ("/api/v1/services\x7f", "net/url: invalid control character in URL"),
        ("/api/v1/services/\udc80", "net/url: invalid control character in URL"),
        ("/api/v1/a%zz", 'invalid URL escape "%zz"'),
        ("/api/v1/services/a%", 'invalid URL escape "%"'),
        ("/version%3", 'invalid URL escape "%3"'),
        ("/api/v1/watch", "unable to determine kind and namespace from url, /api/v1/watch"),
        ("/api/v1/proxy/", "unable to determine kind and namespace from url, /api/v1/proxy/"),
        ("/api/v1/namespaces/n/services/..", "Name parameter invalid: \"..\": may not be '..'"),
        ("/api/v1/namespaces/n/services/%2e", "Name parameter invalid: \".\": may not be '.'"),
        ("/api/v1/namespaces/n/services/a%25b", "Name parameter invalid: \"a%b\": may not contain '%'"),
        ("/api/v1/services?limit=abc", 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ("/api/v1/services?limit", 'strconv.ParseInt: parsing "": invalid syntax'),
        ("/api/v1/services?limit=+2", 'strconv.ParseInt: parsing " 2": invalid syntax'),
        ("/api/v1/services?watch=1&timeoutSeconds=abc", 'strconv.ParseInt: parsing "abc": invalid syntax'),
        (
            "/api/v1/services?timeoutSeconds=99999999999999999999",
            'strconv.ParseInt: parsing "99999999999999999999": value out of range',
        ),
        (
            "/api/v1/services?timeout=10&limit=abc",
            'invalid timeout specified in the request URL - time: missing unit in duration "10"',
        ),
        (
            "/version?timeout=abc",
            'invalid timeout specified in the request URL - time: invalid duration "abc"',
        ),
    ],
)
def test_malformed_targets_are_refused(target: str, message: str) -> None:
    assert outcome("GET", target) == (400, message)


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/../v1/services",
        "/api/v1/./services",
        "/api/v1/namespaces/%2e%2e/services",
        "/api/v1/namespaces/n/services/x/proxy/../../../../secrets",
        "/healthz/..",
        "/api/v1/namespaces/n/services/a%00b",
        "/api/v1/namespaces/n/services/a%0Ab",
        "/api/v1/namespaces/%ff/services",
        "/api/v1/services?labelSelector=%ff",
        "/api/v1/services?continue=a%ff",
    ],
)
def test_some_targets_are_refused_by_the_hub_only(target: str) -> None:
    with pytest.raises(StatusError) as error:
        parse_request("GET", target)
    assert error.value.code == 400


@pytest.mark.parametrize(
    ("method", "target"),
    [("HEAD", "/api/v1/services"), ("POST", "/api/v1/watch/services"), ("HEAD", "/api/v1/services?watch=1")],
)
def test_objects_are_read_by_get_only(method: str, target: str) -> None:
    assert outcome(method, target) == (405, "the server does not allow this method on the requested resource")


STEPS = st.lists(
    st.sampled_from(
        ["api", "apis", "v1", "namespaces", "n", "services", "watch", "proxy", "status", "", "%2f", "é"]
    ),
    max_size=8,
)


@given(STEPS.map("/".join))
def test_the_spelling_of_a_target_does_not_change_the_request(path: str) -> None:
    plain = quote(path.replace("%2f", "/"))
    escaped = "".join(f"%{byte:02x}" for byte in path.replace("%2f", "/").encode())
    assert outcome("GET", f"/api/v1/{escaped}") == outcome("GET", f"/api/v1/{plain}")


@pytest.mark.parametrize(
    ("query", "is_exact"),
    [
        ("", False),
        ("resourceVersion=0&limit=5", False),
        ("limit=5", False),
        ("resourceVersion=7", False),
        ("resourceVersion=7&limit=5", True),
        ("resourceVersion=7&limit=-1", False),
        ("resourceVersion=7&limit=5&resourceVersionMatch=NotOlderThan", False),
        ("resourceVersion=7&resourceVersionMatch=Exact", True),
        ("resourceVersion=7&limit=5&watch=true", False),
        ("limit=5&continue=x", False),
    ],
)
def test_lists_at_an_exact_version_are_recognized(query: str, is_exact: bool) -> None:
    assert parse_request("GET", f"/api/v1/pods?{query}").options.is_exact is is_exact
