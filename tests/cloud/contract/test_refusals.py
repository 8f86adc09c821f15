"""Requests that the server refuses: clients branch on status and reason, users read the message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cloud.caller import Caller
from tests.cloud.contract.objects import config_map
from tests.cloud.rest import JSON_PATCH, MERGE_PATCH

NO_METHOD = "the server does not allow this method on the requested resource"
NO_RESOURCE = "the server could not find the requested resource"


@pytest.fixture
async def existing(caller: Caller, config_maps: str) -> str:
    """Return the path of a namespace's ConfigMaps, with one called "a"."""
    await caller.post(config_maps, config_map("a", k="v"))
    return config_maps


async def refused(
    caller: Caller, code: int, reason: str, message: str, method: str, path: str, **more: Any
) -> None:
    """Check that the request is refused with this code and reason, and a message that starts with `message`."""
    reply = await caller.send(method, path, **more)
    status = reply.json()
    assert reply.status == code, status
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert status["code"] == code
    assert status.get("reason", "") == reason
    assert status["message"].startswith(message)
    assert reply.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("method", "path", "code", "reason", "message"),
    [
        ("GET", "/none", 404, "NotFound", 'configmaps "none" not found'),
        ("PUT", "/none", 404, "NotFound", 'configmaps "none" not found'),
        ("PATCH", "/none", 404, "NotFound", 'configmaps "none" not found'),
        ("DELETE", "/none", 404, "NotFound", 'configmaps "none" not found'),
        ("GET", "/a/status", 404, "NotFound", NO_RESOURCE),
        ("GET", "/a/log", 404, "NotFound", NO_RESOURCE),
        ("POST", "/a", 405, "MethodNotAllowed", NO_METHOD),
        ("PUT", "", 405, "MethodNotAllowed", NO_METHOD),
        ("PATCH", "", 405, "MethodNotAllowed", NO_METHOD),
        ("OPTIONS", "/a", 405, "MethodNotAllowed", NO_METHOD),
    ],
)
async def test_unknown_paths_are_404_and_wrong_methods_405(
    caller: Caller, existing: str, method: str, path: str, code: int, reason: str, message: str
) -> None:
    body: Any = {"metadata": {"name": "none"}} if method in {"PUT", "PATCH", "POST"} else None
    content_type = MERGE_PATCH if method == "PATCH" else "application/json"
    await refused(
        caller, code, reason, message, method, existing + path, body=body, content_type=content_type
    )


@pytest.mark.parametrize(
    ("method", "path", "code", "reason", "message"),
    [
        ("GET", "/api/v1/things", 404, "NotFound", NO_RESOURCE),
        ("GET", "/api/v1/configmaps/a", 404, "NotFound", NO_RESOURCE),
        ("GET", "/api/v1/namespaces/default/nodes", 404, "NotFound", NO_RESOURCE),
        ("GET", "/api/v2", 404, "NotFound", NO_RESOURCE),
        ("POST", "/api/v1/configmaps", 405, "MethodNotAllowed", NO_METHOD),
        ("DELETE", "/api/v1/configmaps", 405, "MethodNotAllowed", NO_METHOD),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405, "MethodNotAllowed", NO_METHOD),
    ],
)
async def test_methods_on_paths_without_a_namespace_are_refused(
    caller: Caller, method: str, path: str, code: int, reason: str, message: str
) -> None:
    await refused(caller, code, reason, message, method, path)


@pytest.mark.parametrize("path", ["/nowhere", "/apis/none.example.com", "/apis/none.example.com/v1/things"])
async def test_paths_outside_the_api_are_refused_in_plain_text(caller: Caller, path: str) -> None:
    reply = await caller.send("GET", path)
    assert (reply.status, reply.body.strip()) == (404, b"404 page not found")
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"


async def test_a_head_is_refused_without_a_body(caller: Caller, existing: str) -> None:
    reply = await caller.send("HEAD", f"{existing}/a")
    assert (reply.status, reply.body) == (405, b"")


@pytest.mark.parametrize(
    ("body", "content_type", "code", "reason", "message"),
    [
        (b"{bad", "application/json", 400, "BadRequest", "the object provided is unrecognized"),
        (b"[]", "application/json", 400, "BadRequest", "the object provided is unrecognized"),
        (b"", "application/json", 400, "BadRequest", "the object provided is unrecognized"),
        (b"k8s\0garbage", "application/vnd.kubernetes.protobuf", 400, "BadRequest", ""),
        (
            b"{}",
            "text/plain",
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format",
        ),
        (
            {"metadata": {"name": "b", "namespace": "other"}},
            "application/json",
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
    ids=lambda value: str(value)[:24] if isinstance(value, (dict, bytes)) else "",
)
async def test_malformed_bodies_of_creates_are_refused(
    caller: Caller, existing: str, body: Any, content_type: str, code: int, reason: str, message: str
) -> None:
    await refused(caller, code, reason, message, "POST", existing, body=body, content_type=content_type)


async def test_a_create_needs_its_namespace(caller: Caller) -> None:
    path, message = "/api/v1/namespaces/never-made/configmaps", 'namespaces "never-made" not found'
    await refused(caller, 404, "NotFound", message, "POST", path, body=config_map("a"))


@pytest.mark.parametrize(
    ("metadata", "code", "reason", "message"),
    [
        (
            {"name": "a", "resourceVersion": "1"},
            409,
            "Conflict",
            "Operation cannot be fulfilled on configmaps",
        ),
        (
            {"name": "a", "namespace": "other"},
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
)
async def test_malformed_bodies_of_updates_are_refused(
    caller: Caller, existing: str, metadata: dict[str, str], code: int, reason: str, message: str
) -> None:
    await refused(caller, code, reason, message, "PUT", f"{existing}/a", body={"metadata": metadata})


@pytest.mark.parametrize(
    ("patch", "content_type", "code", "reason"),
    [
        ({"data": {}}, "application/json", 415, "UnsupportedMediaType"),
        (b"{bad", MERGE_PATCH, 400, "BadRequest"),
        ([], MERGE_PATCH, 400, "BadRequest"),
        ({"op": "remove"}, JSON_PATCH, 400, "BadRequest"),
        ([{"op": "test", "path": "/data/k", "value": "w"}], JSON_PATCH, 422, "Invalid"),
        ([{"op": "remove", "path": "/data/none"}], JSON_PATCH, 422, "Invalid"),
        ({"metadata": {"name": "b"}}, MERGE_PATCH, 400, "BadRequest"),
        ({"metadata": {"resourceVersion": "1"}}, MERGE_PATCH, 409, "Conflict"),
    ],
)
async def test_malformed_patches_are_refused(
    caller: Caller, existing: str, patch: Any, content_type: str, code: int, reason: str
) -> None:
    await refused(caller, code, reason, "", "PATCH", f"{existing}/a", body=patch, content_type=content_type)


@pytest.mark.parametrize("watch", ["", "true"])
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"labelSelector": "a=b=c"}, "found '=', expected: ',' or 'end of string'"),
        ({"labelSelector": "!"}, "unable to parse requirement: found '', expected: identifier"),
        ({"labelSelector": "n in (1,2"}, "unable to parse requirement: found '', expected: ',' or ')'"),
        ({"labelSelector": "a=-x"}, 'unable to parse requirement: values[0][a]: Invalid value: "-x"'),
        ({"labelSelector": "n>x"}, 'unable to parse requirement: values[0]: Invalid value: "x"'),
        ({"fieldSelector": "foo"}, "invalid selector: 'foo'; can't understand 'foo'"),
        (
            {"fieldSelector": "spec.foo=bar"},
            '"spec.foo" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ({"timeoutSeconds": "abc"}, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ({"limit": "abc"}, 'strconv.ParseInt: parsing "abc": invalid syntax'),
    ],
    ids=lambda value: next(iter(value.values())) if isinstance(value, dict) else "",
)
async def test_malformed_query_parameters_are_refused(
    caller: Caller, config_maps: str, query: dict[str, str], message: str, watch: str
) -> None:
    query = {**query, "watch": watch, "timeoutSeconds": query.get("timeoutSeconds", "1")}
    await refused(caller, 400, "BadRequest", message, "GET", config_maps, query=query)


@pytest.mark.parametrize("kind", ["services", "nodes", "pods", "secrets", "namespaces", "events"])
async def test_kinds_with_selectable_fields_refuse_an_unknown_field(caller: Caller, kind: str) -> None:
    query = {"fieldSelector": "spec.none=x"}
    message = "field label not supported: spec.none"
    await refused(caller, 400, "BadRequest", message, "GET", f"/api/v1/{kind}", query=query)


@pytest.mark.parametrize(
    ("asked", "why"),
    [("abc", "invalid syntax"), ("-1", "invalid syntax"), ("18446744073709551616", "value out of range")],
)
async def test_malformed_resource_versions_are_refused(
    caller: Caller, existing: str, asked: str, why: str
) -> None:
    number = 'Invalid value: "{0}": strconv.ParseUint: parsing "{0}": {1}'
    query, expected = {"resourceVersion": asked}, number.format(asked, why)
    message = f"invalid resource version: resourceVersion: {expected}"
    await refused(caller, 400, "BadRequest", message, "GET", existing, query=query)
    await refused(
        caller, 500, "", f"resourceVersion: {expected}", "GET", existing, query={**query, "watch": "1"}
    )
    await refused(caller, 500, "", f"resourceVersion: {expected}", "GET", f"{existing}/a", query=query)


@pytest.mark.parametrize(("asked", "match"), [("999999999", "NotOlderThan"), (str(2**64 - 1), "Exact")])
async def test_future_resource_versions_are_refused(
    caller: Caller, existing: str, asked: str, match: str
) -> None:
    reply = await caller.send(
        "GET", existing, query={"resourceVersion": asked, "resourceVersionMatch": match}
    )
    status = reply.json()
    assert (reply.status, status["reason"]) == (504, "Timeout")
    assert status["message"].startswith(f"Timeout: Too large resource version: {asked}, current: ")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert (status["details"]["retryAfterSeconds"], reply.headers["Retry-After"]) == (1, "1")


OPTIONS = 'ListOptions.meta.k8s.io "" is invalid: '
MATCH = OPTIONS + "resourceVersionMatch: "


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"resourceVersionMatch": "Exact"}, MATCH + "Forbidden: resourceVersionMatch is forbidden unless"),
        ({"resourceVersionMatch": "Foo", "resourceVersion": "1"}, MATCH + 'Unsupported value: "Foo"'),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            MATCH + "Forbidden: resourceVersionMatch",
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "1", "continue": "x"},
            MATCH + "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
        (
            {"sendInitialEvents": "true"},
            OPTIONS + "sendInitialEvents: Forbidden: sendInitialEvents is forbidden",
        ),
        (
            {"watch": "1", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
            MATCH
            + "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        ({"watch": "1", "sendInitialEvents": "true"}, MATCH + "Forbidden: sendInitialEvents requires"),
        (
            {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
            OPTIONS + "[resourceVersionMatch: Forbidden: sendInitialEvents requires",
        ),
        (
            {"watch": "1", "continue": "x"},
            MATCH + "Forbidden: resourceVersionMatch is forbidden when continue",
        ),
    ],
)
async def test_incompatible_list_options_are_refused(
    caller: Caller, config_maps: str, query: dict[str, str], message: str
) -> None:
    await refused(caller, 422, "Invalid", message, "GET", config_maps, query=query)


@pytest.mark.parametrize("token", ["garbage", "eyJ2IjoibWV0YS5rOHMuaW8vdjMiLCJydiI6MSwic3RhcnQiOiJhIn0"])
async def test_malformed_continue_tokens_are_refused(caller: Caller, config_maps: str, token: str) -> None:
    query = {"continue": token, "limit": "1"}
    message = "invalid continue token: continue key is not valid"
    await refused(caller, 400, "BadRequest", message, "GET", config_maps, query=query)


async def test_a_page_with_a_resource_version_is_400(caller: Caller, existing: str) -> None:
    await caller.post(existing, config_map("b"))
    page = await caller.get(existing, limit="1")
    query = {"continue": page["metadata"]["continue"], "resourceVersion": "5"}
    message = "specifying resource version is not allowed when using continue"
    await refused(caller, 400, "BadRequest", message, "GET", existing, query=query)


@pytest.mark.parametrize("path", ["", "/a"])
async def test_an_unknown_representation_is_406(caller: Caller, existing: str, path: str) -> None:
    for accept in ("application/foo", "application/json;as=Foo;v=v1;g=meta.k8s.io"):
        await refused(caller, 406, "NotAcceptable", "", "GET", existing + path, headers={"Accept": accept})


async def test_custom_resources_have_no_protobuf(caller: Caller, things: str) -> None:
    protobuf = "application/vnd.kubernetes.protobuf"
    reply = await caller.send("GET", things, headers={"Accept": protobuf})
    assert (reply.status, reply.headers["Content-Type"]) == (406, protobuf)
    reply = await caller.send("GET", things, headers={"Accept": f"{protobuf},application/json"})
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json")
