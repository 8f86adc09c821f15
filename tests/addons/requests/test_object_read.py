"""The object that a request reads, the request context, headers and Statuses, and the user at the other end of a local
connection."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import weakref
from pathlib import Path

import orjson
import pytest
from mitmproxy import http
from mitmproxy.test import tflow, tutils

from addons.requests import headers
from addons.requests import peer_user as peer_users
from addons.requests.answers import object_answer, status_answer
from addons.requests.caller import CredentialSource
from addons.requests.hidden_credentials import hide
from addons.requests.object_read import parse_continued
from addons.requests.peer_user import peer_user
from addons.requests.request_context import RequestContext, begin, context_of
from addons.requests.route_decision import Route, RouteKind
from kube.errors import StatusError, forbidden, unavailable
from kube.requests.continue_tokens import ContinueToken
from kube.requests.request_info import ListOptions, parse_request
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from tests.addons.support.refusals import refuses
from tests.addons.support.samples import POD, SERVICES, raw, read_of, request_context, service

ONE = "/api/v1/namespaces/a/services/web"


@pytest.mark.parametrize(
    ("target", "verb", "version", "consistent", "state"),
    [
        (SERVICES, "list", 0, True, False),
        (f"{SERVICES}?resourceVersion=0", "list", 0, False, False),
        (f"{SERVICES}?resourceVersion=7", "list", 7, False, False),
        (f"{SERVICES}?watch=true", "watch", 0, True, True),
        (f"{SERVICES}?watch=true&resourceVersion=0", "watch", 0, False, True),
        (f"{SERVICES}?watch=true&resourceVersion=7", "watch", 7, False, False),
        (
            f"{SERVICES}?watch=1&resourceVersion=7&sendInitialEvents=1&resourceVersionMatch=NotOlderThan",
            "watch",
            7,
            False,
            True,
        ),
        (
            f"{SERVICES}?watch=1&sendInitialEvents=0&resourceVersionMatch=NotOlderThan",
            "watch",
            0,
            False,
            False,
        ),
        (f"{ONE}?resourceVersion=nonsense", "get", 0, False, False),
    ],
)
def test_the_resource_version_options_of_a_read_are_parsed(
    target: str, verb: str, version: int, consistent: bool, state: bool
) -> None:
    read = read_of(target)
    assert (read.verb, read.version, read.is_consistent, read.wants_state) == (
        verb,
        version,
        consistent,
        state,
    )


def test_selectors_select_objects_and_lists_are_paged() -> None:
    read = read_of(
        f"{SERVICES}?labelSelector=b,a%3D1&fieldSelector=metadata.name%3Dx&resourceVersion=5"
        "&resourceVersionMatch=Exact&timeoutSeconds=3"
    )
    assert (read.labels.canonical, read.fields.canonical) == ("a=1,b", "metadata.name=x")
    assert (read.is_exact, read.name, read.timeout_seconds, read.continued) == (True, "x", 3, None)
    assert read_of(f"{SERVICES}?watch=1&allowWatchBookmarks=1").bookmarks


def test_accepted_forms_are_in_the_clients_order() -> None:
    accept = "application/vnd.kubernetes.protobuf, application/json"
    assert [each.encoding for each in read_of(SERVICES, accept).accepted] == [
        Encoding.PROTOBUF,
        Encoding.JSON,
    ]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("labelSelector=%3D%3D", 400),
        ("fieldSelector=x", 400),
        ("resourceVersion=x", 400),
        ("resourceVersion=-1", 400),
        ("watch=1&resourceVersion=x", 500),
        ("resourceVersionMatch=Exact", 422),
        ("watch=1&sendInitialEvents=1", 422),
    ],
)
def test_a_read_with_invalid_options_is_refused(query: str, code: int) -> None:
    with refuses(code):
        read_of(f"{SERVICES}?{query}")


@pytest.mark.parametrize(
    ("query", "limit", "exact", "consistent"),
    [
        ("limit=2", 2, False, True),
        ("limit=-2", 0, False, True),
        ("limit=2&resourceVersion=0", 0, False, False),
        ("limit=2&resourceVersion=5", 2, True, False),
        ("resourceVersion=5", 0, False, False),
        ("limit=2&resourceVersion=5&resourceVersionMatch=NotOlderThan", 2, False, False),
        (f"limit=2&continue={ContinueToken(5, 'x').encode()}", 2, False, False),
        (f"limit=2&continue={ContinueToken(-1, 'x').encode()}", 2, False, True),
    ],
)
def test_limit_and_version_of_a_list_follow_kube_apiservers_rules(
    query: str, limit: int, exact: bool, consistent: bool
) -> None:
    """The limit is ignored at version 0, and makes any other version exact."""
    read = read_of(f"{SERVICES}?{query}")
    assert (read.limit, read.is_exact, read.is_consistent) == (limit, exact, consistent)


def test_a_page_continues_at_the_version_of_its_token() -> None:
    token = ContinueToken(5, "x").encode()
    assert read_of(f"{SERVICES}?continue={token}").continued == ContinueToken(5, "x")
    options = ListOptions(continue_token=token, resource_version="5")
    with pytest.raises(StatusError, match="specifying resource version is not allowed when using continue"):
        parse_continued(options)


def test_a_new_context_has_no_credentials_and_no_route() -> None:
    known = request_context()
    made = RequestContext(parse_request("GET", "/version"), "", known.listener, None)
    assert made.caller.credential_source is CredentialSource.NONE
    assert (made.route, made.server, made.answerer, made.counted) == (None, "", None, False)


def test_each_flow_has_its_own_context() -> None:
    one, other = tflow.tflow(), tflow.tflow()
    made = request_context(), request_context()
    begin(one, made[0])
    begin(other, made[1])
    assert context_of(one) is made[0]
    assert context_of(other) is made[1]


def test_a_flow_without_a_parsed_request_has_no_context() -> None:
    assert context_of(tflow.tflow()) is None


def test_a_copied_flow_is_a_new_request() -> None:
    """A user replays a request this way: the hub must parse and route it again."""
    flow = tflow.tflow()
    begin(flow, request_context())
    assert context_of(flow.copy()) is None


def test_the_callers_token_is_not_in_mitmproxys_flow_state() -> None:
    flow = tflow.tflow()
    begin(flow, request_context(caller=POD))
    assert POD.authorization not in repr(flow.get_state())
    assert not flow.metadata


def test_a_context_ends_with_its_flow() -> None:
    flow, made = tflow.tflow(), request_context()
    begin(flow, made)
    gone = weakref.ref(flow)
    del flow
    gc.collect()
    assert gone() is None


def test_a_request_for_a_view_is_converted_to_a_value_without_headers() -> None:
    context = request_context(SERVICES, component="kubelet", caller=POD)
    context.route, context.sent = Route(RouteKind.VIEW, "test"), 1
    wanted = context.client_request(tutils.treq(path=SERVICES.encode()))
    assert (wanted.info, wanted.component, wanted.caller) == (context.info, "kubelet", POD)
    assert (wanted.route, wanted.sent, wanted.target) == (context.route, 1, SERVICES)
    assert not wanted.headers
    assert POD.authorization not in repr(wanted)


def test_a_request_for_another_route_retains_all_its_headers() -> None:
    context = request_context(SERVICES)
    context.route = Route(RouteKind.CACHED_RELAY, "test")
    fields = [(b"Authorization", b"Bearer x"), (b"Accept", b"a"), (b"accept", b"b\xff")]
    request = tutils.treq(path=b"/api?token=secret", headers=http.Headers(fields), content=b"body")
    hide(request)
    wanted = context.client_request(request)
    assert (wanted.target, wanted.body) == ("/api?token=secret", b"body")
    assert list(wanted.headers.items()) == [
        ("Accept", "a"),
        ("accept", "b\udcff"),
        ("Authorization", "Bearer x"),
    ]
    assert wanted.headers["authorization"] == "Bearer x"


def test_an_object_response_has_one_body_and_cache_control() -> None:
    found = object_answer(Encoded.read(codec_for(Encoding.JSON), raw(service("web", 3))), 201)
    assert (found.status, found.headers["Content-Type"]) == (201, "application/json")
    assert found.headers["Cache-Control"] == "no-cache, private"
    assert isinstance(found.body, bytes)
    assert orjson.loads(found.body) == service("web", 3)


@pytest.mark.parametrize(
    ("error", "code", "delay"),
    [(forbidden("no"), 403, None), (unavailable("later", retry_after=3), 503, "3")],
)
def test_a_status_response_has_a_retry_after_header(error: StatusError, code: int, delay: str | None) -> None:
    found = status_answer(error)
    assert (found.status, found.headers.get("Retry-After")) == (code, delay)
    assert isinstance(found.body, bytes)
    assert orjson.loads(found.body)["code"] == code


def test_the_hubs_header_names_are_unique_and_lower_case() -> None:
    """RFC 9113, section 8.2.1: a field name with upper-case letters makes a request malformed."""
    names = [value for key, value in vars(headers).items() if key.endswith("_HEADER")]
    assert len(set(names)) == len(names) > 0
    assert all(name == name.lower() and name.startswith("x-edgehub-") for name in names)


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROWS = HEAD + (
    "   0: 0100007F:2815 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1\n"
    "   1: 0100007F:D431 0100007F:2815 01 00000000:00000000 00:00000000 00000000  1000        0 101 1\n"
    "   2: 0100007F:2815 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 102 1\n"
    "   3: 0100007F:D432 0100007F:2815 06 00000000:00000000 03:000013F4 00000000     0        0 0 3\n"
)
OWN = ("127.0.0.1", 10261)


@pytest.mark.skipif(sys.byteorder != "little", reason="the rows are of such a machine")
async def test_the_user_of_a_connection_is_read_from_the_kernels_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = tmp_path / "tcp"
    table.write_text(ROWS)
    monkeypatch.setitem(peer_users.TABLES, 4, str(table))
    for port, user in (0xD431, 1000), (0xD432, None), (0xD433, None):
        assert await peer_user(("127.0.0.1", port), OWN) == user, "open, closed, unknown"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_user_of_a_real_connection_is_found(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2])
        accepted, peer = server.accept()
        with client, accepted:
            assert asyncio.run(peer_user(peer[:2], accepted.getsockname()[:2])) == os.geteuid()


async def test_concurrent_lookups_share_the_next_read_of_the_kernels_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """3,000 aborted connections once took 24 MB, and 18,000 took 230 MB, as each waited for its own read."""
    table = tmp_path / "tcp"
    os.mkfifo(table)
    monkeypatch.setitem(peer_users.TABLES, 4, str(table))
    asked = [asyncio.create_task(peer_user(("127.0.0.1", 0xD431), OWN), name="first")]
    # Opening the pipe for writing waits for a reader, so the first read has begun.
    first = await asyncio.to_thread(table.open, "w")
    asked += [asyncio.create_task(peer_user(("127.0.0.1", 0xD431), OWN), name="later") for _ in range(1000)]
    await asyncio.sleep(0)
    asked[1].cancel()
    first.close()
    assert await asked[0] is None, "the table was empty"
    second = await asyncio.to_thread(table.open, "w")
    second.write(ROWS)
    second.close()
    found = await asyncio.gather(*asked[1:], return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [1000] * 999, (
        "one read served all of them, and one that left took nothing from the others"
    )
