"""Hooks that fail: each kind of them answers a Status or ends the connection, is counted, and lets nothing pass."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
from mitmproxy import connection, hooks, http, tls
from mitmproxy.options import Options as MitmproxyOptions
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http._hooks import HttpRequestHeadersHook
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.test import taddons, tflow
from OpenSSL import SSL

from addons.hub import addons
from addons.proxy.fail_closed import guarded, guarded_connection, refuse
from addons.telemetry import metrics
from kube.errors import StatusError, forbidden, unavailable
from tests.addons.support.observed import value_of

MESSAGE = "the secret reason"
"""Of an unexpected error: for the log, never for a client."""

FLOW_HOOKS = ("requestheaders", "request", "responseheaders", "response", "error")
CONNECTION_HOOKS = tuple(
    sorted(
        name for name in hooks.all_hooks if name.startswith(("client_", "server_", "tls_", "quic_", "next_"))
    )
)
UPGRADED_HOOKS = ("tcp_message",)
"""Of connections that no longer speak HTTP: what passes was allowed with the request."""
CHAIN: list[Any] = list(addons)

HOOKS = [
    pytest.param(addon, name, id=f"{addon.name}.{name}")
    for addon in CHAIN
    for name in hooks.all_hooks
    if inspect.isroutine(getattr(addon, name, None))
]
LIFE = ("load", "configure", "running", "done", "add_log", "update")
"""Hooks of the process, not of a client."""


class Failing:
    """An addon of which every hook raises what it was given."""

    name = "failing"

    def __init__(self, error: Exception) -> None:
        self.error = error

    @guarded
    def requestheaders(self, flow: http.HTTPFlow) -> None:
        raise self.error

    @guarded
    async def request(self, flow: http.HTTPFlow) -> None:
        raise self.error

    @guarded
    def responseheaders(self, flow: http.HTTPFlow) -> None:
        raise self.error

    @guarded
    async def response(self, flow: http.HTTPFlow) -> None:
        raise self.error

    @guarded_connection
    def server_connect(self, data: ServerConnectionHookData) -> None:
        raise self.error

    @guarded_connection
    def tls_start_client(self, data: tls.TlsData) -> None:
        raise self.error

    @guarded_connection
    def client_connected(self, client: connection.Client) -> None:
        raise self.error


async def run(addon: object, hook: str, data: object) -> None:
    done = getattr(addon, hook)(data)
    if inspect.isawaitable(done):
        await done


def counted(hook: str, addon: str = "failing") -> float:
    return value_of(metrics.HOOK_ERRORS.labels(addon, hook))


def status_of(flow: http.HTTPFlow) -> dict[str, Any]:
    assert flow.response is not None
    found: dict[str, Any] = json.loads(flow.response.content or b"")
    return found


def streamed(response: http.Response, *upstream: bytes) -> bytes:
    """What a client reads of a streamed body, when these chunks come from upstream."""
    stream = response.stream
    assert callable(stream)
    return b"".join(bytes(stream(chunk)) for chunk in (*upstream, b""))  # type: ignore[arg-type]  # ours give bytes


def tls_data(conn: connection.Connection) -> tls.TlsData:
    return tls.TlsData(conn, Context(tflow.tclient_conn(), MitmproxyOptions()))


@pytest.mark.parametrize(("code", "counted"), [(400, 1), (413, 1), (403, 0), (503, 0)])
async def test_malformed_requests_are_counted(code: int, counted: int) -> None:
    metric = metrics.REQUESTS_REFUSED.labels(str(code))
    before = value_of(metric)
    flow = tflow.tflow()
    Failing(StatusError(code, "", "")).requestheaders(flow)
    assert flow.response is not None
    assert flow.response.status_code == code
    assert value_of(metric) == before + counted


@pytest.mark.parametrize("hook", ["requestheaders", "request", "response"])
async def test_an_unexpected_error_is_a_500_that_tells_nothing_and_is_counted(
    hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    flow, before = tflow.tflow(resp=hook == "response"), counted(hook)
    await run(Failing(RuntimeError(MESSAGE)), hook, flow)
    said = status_of(flow)
    assert (said["kind"], said["code"]) == ("Status", 500)
    assert flow.response is not None
    assert flow.response.status_code == 500
    assert MESSAGE.encode() not in (flow.response.content or b"")
    assert counted(hook) == before + 1
    assert MESSAGE in caplog.text


@pytest.mark.parametrize("hook", ["requestheaders", "request", "response"])
async def test_a_status_error_is_the_answer_and_no_failure(hook: str) -> None:
    flow, before = tflow.tflow(resp=hook == "response"), counted(hook)
    await run(Failing(forbidden("not you")), hook, flow)
    assert (status_of(flow)["code"], status_of(flow)["message"]) == (403, "not you")
    assert counted(hook) == before


@pytest.mark.parametrize("hook", ["requestheaders", "request"])
async def test_nothing_more_is_done_for_a_request_that_has_its_answer(hook: str) -> None:
    flow = tflow.tflow(resp=http.Response.make(403))
    await run(Failing(RuntimeError(MESSAGE)), hook, flow)
    assert flow.response is not None
    assert flow.response.status_code == 403


async def test_what_came_from_upstream_is_dropped() -> None:
    flow = tflow.tflow(resp=http.Response.make(200, b"unfiltered", {"Set-Cookie": "a", "ETag": "b"}))
    await run(Failing(RuntimeError(MESSAGE)), "response", flow)
    assert flow.response is not None
    assert b"unfiltered" not in (flow.response.content or b"")
    assert {"Set-Cookie", "ETag"}.isdisjoint(flow.response.headers)


@pytest.mark.parametrize("upstream", [(), (b"unfiltered",), (b"unfil", b"tered")])
async def test_a_failure_in_the_middle_of_a_response_sends_the_status_and_no_byte_of_upstreams_body(
    upstream: tuple[bytes, ...],
) -> None:
    flow = tflow.tflow(resp=http.Response.make(200, b"", {"Content-Length": "10"}))
    await run(Failing(RuntimeError(MESSAGE)), "responseheaders", flow)
    assert flow.response is not None
    body = streamed(flow.response, *upstream)
    assert json.loads(body)["code"] == 500
    assert b"filtered" not in body
    # The Status' end is the connection's: upstream's promise of a length is not ours.
    assert "Content-Length" not in flow.response.headers
    assert flow.response.headers["Connection"] == "close"


def test_a_refusal_stops_the_stream_of_the_request() -> None:
    flow = tflow.tflow()
    flow.request.stream = True
    refuse(flow, unavailable("later", retry_after=3))
    assert flow.request.stream is False
    assert flow.response is not None
    assert (flow.response.status_code, flow.response.headers["Retry-After"]) == (503, "3")


def test_a_refusal_without_a_delay_has_no_retry_after() -> None:
    flow = tflow.tflow()
    refuse(flow, unavailable("no"))
    assert flow.response is not None
    assert "Retry-After" not in flow.response.headers


@pytest.mark.parametrize("error", [RuntimeError(MESSAGE), unavailable("gone")])
def test_a_server_connection_is_refused_before_it_is_made(error: Exception) -> None:
    data = ServerConnectionHookData(tflow.tserver_conn(), tflow.tclient_conn())
    Failing(error).server_connect(data)
    assert data.server.error
    assert MESSAGE not in data.server.error


def test_a_client_connection_is_refused() -> None:
    client, before = tflow.tclient_conn(), counted("client_connected")
    Failing(RuntimeError(MESSAGE)).client_connected(client)
    assert client.error
    assert counted("client_connected") == before + 1


@pytest.mark.parametrize("conn", [tflow.tclient_conn(), tflow.tserver_conn()])
def test_a_handshake_cannot_succeed(conn: connection.Connection) -> None:
    data = tls_data(conn)
    Failing(RuntimeError(MESSAGE)).tls_start_client(data)
    assert data.ssl_conn is not None, "mitmproxy would make one by its own rules"
    ours_is_server = isinstance(conn, connection.Client)
    other = SSL.Connection(SSL.Context(SSL.TLS_METHOD))
    begin = other.set_connect_state if ours_is_server else other.set_accept_state
    begin()
    with pytest.raises(SSL.Error):
        shake_hands(data.ssl_conn, other)


def shake_hands(one: SSL.Connection, other: SSL.Connection) -> None:
    """In memory, until both are done or one raises."""
    for _ in range(10):
        for this, that in ((one, other), (other, one)):
            with contextlib.suppress(SSL.WantReadError):
                this.do_handshake()
            with contextlib.suppress(SSL.WantReadError):
                that.bio_write(this.bio_read(1 << 16))


@pytest.mark.parametrize(("addon", "name"), HOOKS)
def test_every_hook_of_every_addon_is_guarded(addon: object, name: str) -> None:
    """A hook of a client's flow or connection without a guard fails open: mitmproxy only logs what it raises."""
    if name in LIFE:
        return
    guard = getattr(type(addon).__dict__[name], "guard", None)
    if name in FLOW_HOOKS:
        assert guard is guarded
    else:
        assert name in (*CONNECTION_HOOKS, *UPGRADED_HOOKS)
        assert guard is guarded_connection


def test_the_hooks_above_are_those_that_a_client_can_reach() -> None:
    """A kind of hook that mitmproxy adds must be thought of here; websocket_, udp_ and dns_ no addon has."""
    others = {
        name
        for name in hooks.all_hooks
        if name not in (*FLOW_HOOKS, *CONNECTION_HOOKS, *UPGRADED_HOOKS, *LIFE)
        and any(inspect.isroutine(getattr(addon, name, None)) for addon in addons)
    }
    assert others == set()


@pytest.fixture
def failing_hook(monkeypatch: pytest.MonkeyPatch) -> Callable[[object, str], None]:
    """Puts a body that raises into the very guard that a hook has."""

    def fail(addon: object, name: str) -> None:
        cls = type(addon)
        is_async = inspect.iscoroutinefunction(cls.__dict__[name])

        def plain(self: object, data: object) -> None:
            raise RuntimeError(MESSAGE)

        async def awaited(self: object, data: object) -> None:
            raise RuntimeError(MESSAGE)

        body = awaited if is_async else plain
        body.__name__ = name
        monkeypatch.setattr(cls, name, cls.__dict__[name].guard(body))

    return fail


@pytest.mark.parametrize(("addon", "name"), [p for p in HOOKS if p.values[1] in FLOW_HOOKS])
async def test_a_hook_that_raises_costs_its_client_a_500_and_one_count(
    addon: Any, name: str, failing_hook: Callable[[object, str], None]
) -> None:
    failing_hook(addon, name)
    flow = tflow.tflow(resp=name.startswith("response"))
    before = counted(name, addon.name)
    with taddons.context() as context:
        # As mitmproxy calls it: an exception that got out would only be logged, and the flow would go on.
        await context.master.addons.invoke_addon(addon, hooks.all_hooks[name](flow))
    assert flow.response is not None
    assert flow.response.status_code == 500
    assert counted(name, addon.name) == before + 1


@pytest.mark.parametrize(("addon", "name"), [p for p in HOOKS if p.values[1] in CONNECTION_HOOKS])
async def test_a_hook_that_raises_ends_its_connection_and_is_counted_once(
    addon: Any, name: str, failing_hook: Callable[[object, str], None]
) -> None:
    failing_hook(addon, name)
    before = counted(name, addon.name)
    client, server = tflow.tclient_conn(), tflow.tserver_conn()
    data: Any = client
    if name.startswith("server_"):
        data = ServerConnectionHookData(server, client)
    elif name.startswith("tls_"):
        data = tls_data(client if name.endswith("client") else server)
    with taddons.context() as context:
        await context.master.addons.invoke_addon(addon, hooks.all_hooks[name](data))
    assert counted(name, addon.name) == before + 1
    if name.startswith("tls_start"):
        assert data.ssl_conn is not None
    elif not name.startswith("tls_"):  # too late to end a handshake that is done; see test_identity
        assert (server if name.startswith("server_") else client).error


async def test_mitmproxy_only_logs_a_hook_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    """The fact that all this stands on; when it changes, the guard may go."""

    class Naked:
        def requestheaders(self, flow: http.HTTPFlow) -> None:
            raise RuntimeError(MESSAGE)

    flow = tflow.tflow()
    with taddons.context(Naked()) as context:
        await context.master.addons.handle_lifecycle(HttpRequestHeadersHook(flow))
    assert (flow.response, flow.error) == (None, None)
    assert MESSAGE in caplog.text


def test_a_status_error_with_a_500_of_its_own_is_no_hook_error() -> None:
    flow, before = tflow.tflow(), counted("requestheaders")
    Failing(StatusError(500, "InternalError", "said so")).requestheaders(flow)
    assert status_of(flow)["message"] == "said so"
    assert counted("requestheaders") == before
