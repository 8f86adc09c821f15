"""Room for many watches, an end for chosen connections, and Status bodies where mitmproxy writes its own."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from mitmproxy import connection
from mitmproxy.addons import next_layer
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy import layers, server
from mitmproxy.proxy.layers import http as http_layers
from mitmproxy.proxy.layers.http import _http1, _http2
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.test import taddons, tflow

from addons.connections import Connections
from addons.proxy.http_connections import STREAMS_PER_CLIENT
from addons.proxy.http_layer import LastingHttpLayer
from addons.proxy.upstream_failover import FailoverStream


def patched(module: object, name: str) -> Any:
    """What mitmproxy now uses under this name, which it does not export."""
    return getattr(module, name)


@pytest.fixture
def proxyserver() -> Iterator[Proxyserver]:
    made = Proxyserver()
    with taddons.context(made):
        yield made


class Task:
    """Stands for the task of an open connection."""

    def __init__(self) -> None:
        self.cancelled = ""

    def cancel(self, why: str) -> None:
        self.cancelled = why


def add_handler(
    proxyserver: Proxyserver, client: connection.Client, *servers: connection.Server
) -> list[Task]:
    """A client connection with its upstream ones, as mitmproxy keeps them."""
    tasks = [Task() for _ in (client, *servers)]
    transports = {
        conn: SimpleNamespace(handler=task) for conn, task in zip((client, *servers), tasks, strict=True)
    }
    handler: Any = SimpleNamespace(max_conns={}, transports=transports)
    proxyserver.connections[client.id] = handler
    return tasks


async def test_a_client_connection_gets_room_for_many_watches(proxyserver: Proxyserver) -> None:
    client = tflow.tclient_conn()
    add_handler(proxyserver, client)
    Connections().client_connected(client)
    room = proxyserver.connections[client.id].max_conns
    semaphore = room["cloud", 6443]
    assert isinstance(semaphore, asyncio.Semaphore)
    async with asyncio.timeout(10):
        for _ in range(STREAMS_PER_CLIENT):
            await semaphore.acquire()
    assert semaphore.locked()
    assert not room["other", 6443].locked(), "each server has its own"


def test_a_client_that_mitmproxy_does_not_know_is_left_alone(proxyserver: Proxyserver) -> None:
    client = tflow.tclient_conn()
    Connections().client_connected(client)
    assert client.error is None


def test_without_the_proxyserver_addon_a_connection_is_refused() -> None:
    client = tflow.tclient_conn()
    with taddons.context():
        Connections().client_connected(client)
    assert client.error


def test_mitmproxys_own_limit_is_what_this_widens() -> None:
    """The attribute is private to mitmproxy: its name and its default are checked here."""
    assert "self.max_conns = collections.defaultdict(lambda: asyncio.Semaphore(5))" in inspect.getsource(
        server
    )


def test_only_upstream_connections_that_match_are_cut(proxyserver: Proxyserver) -> None:
    one, other = tflow.tserver_conn(), tflow.tserver_conn()
    client, ended, kept = add_handler(proxyserver, tflow.tclient_conn(), one, other)
    (second_client,) = add_handler(proxyserver, tflow.tclient_conn())
    assert Connections().cut(lambda conn: conn is one) == 1
    assert ended.cancelled
    assert not any(task.cancelled for task in (client, kept, second_client))
    assert Connections().cut(lambda _: True) == 2


def test_a_connection_without_a_task_is_passed_over(proxyserver: Proxyserver) -> None:
    client, server = tflow.tclient_conn(), tflow.tserver_conn()
    add_handler(proxyserver, client, server)
    proxyserver.connections[client.id].transports[server].handler = None
    assert Connections().cut(lambda _: True) == 0


def test_a_connection_that_could_not_be_opened_is_not_kept(proxyserver: Proxyserver) -> None:
    client, failed, open_ = tflow.tclient_conn(), tflow.tserver_conn(), tflow.tserver_conn()
    add_handler(proxyserver, client, failed, open_)
    Connections().server_connect_error(ServerConnectionHookData(failed, client))
    assert set(proxyserver.connections[client.id].transports) == {client, open_}


@pytest.mark.usefixtures("restored")
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
    Connections().load(None)
    response = patched(_http1, "make_error_response")(code, "why\nit <b>failed</b>")
    head, _, body = response.partition(b"\r\n\r\n")
    said = json.loads(body)
    assert (said["kind"], said["status"], said["code"], said["reason"]) == ("Status", "Failure", code, reason)
    assert head.startswith(b"HTTP/1.1 %d " % code)
    lines = head.split(b"\r\n")
    assert b"Content-Type: application/json" in lines
    assert b"Content-Length: %d" % len(body) in lines
    assert json.loads(patched(_http2, "format_error")(code, "why"))["code"] == code


@pytest.mark.usefixtures("restored")
def test_streams_can_be_rescued() -> None:
    Connections().load(None)
    assert patched(http_layers, "HttpStream") is FailoverStream


@pytest.mark.usefixtures("restored")
def test_client_connections_last() -> None:
    Connections().load(None)
    assert patched(layers, "HttpLayer") is patched(next_layer, "HttpLayer") is LastingHttpLayer


@pytest.mark.usefixtures("restored")
def test_a_long_reason_is_cut_and_stays_on_one_line() -> None:
    Connections().load(None)
    said = json.loads(patched(_http2, "format_error")(502, "a\nb " * 1000))
    assert "\n" not in said["message"]
    assert len(said["message"]) < 300


@pytest.mark.usefixtures("restored")
def test_an_http2_client_is_told_that_it_may_have_as_many_streams() -> None:
    Connections().load(None)
    made = patched(_http2, "BufferedH2Connection")(H2Configuration(client_side=False))
    made.initiate_connection()
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.receive_data(made.data_to_send())
    assert client.remote_settings.max_concurrent_streams == STREAMS_PER_CLIENT
