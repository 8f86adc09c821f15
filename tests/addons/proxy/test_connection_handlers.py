"""The hub's changes to mitmproxy's handlers: room for many watches, and an end for chosen connections."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import connection
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy import server
from mitmproxy.test import taddons, tflow

from addons.proxy.connection_handlers import allow_many_connections, cut, forget_failed
from addons.proxy.http.http_connections import STREAMS_PER_CLIENT


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
    allow_many_connections(client)
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
    allow_many_connections(client)
    forget_failed(client, tflow.tserver_conn())
    assert client.error is None


def test_mitmproxys_own_limit_is_what_this_widens() -> None:
    """The attribute is private to mitmproxy: its name and its default are checked here."""
    assert "self.max_conns = collections.defaultdict(lambda: asyncio.Semaphore(5))" in inspect.getsource(
        server
    )


def test_mitmproxy_itself_keeps_a_connection_that_could_not_be_opened() -> None:
    """Where the failed branch takes the transport out again, `forget_failed` is not needed."""
    source = inspect.getsource(server.ConnectionHandler.open_connection)
    assert "transports.pop" not in source


def test_only_upstream_connections_that_match_are_cut(proxyserver: Proxyserver) -> None:
    one, other = tflow.tserver_conn(), tflow.tserver_conn()
    client, ended, kept = add_handler(proxyserver, tflow.tclient_conn(), one, other)
    (second_client,) = add_handler(proxyserver, tflow.tclient_conn())
    assert cut(lambda conn: conn is one) == 1
    assert ended.cancelled
    assert not any(task.cancelled for task in (client, kept, second_client))
    assert cut(lambda _: True) == 2


def test_a_connection_without_a_task_is_passed_over(proxyserver: Proxyserver) -> None:
    client, upstream = tflow.tclient_conn(), tflow.tserver_conn()
    add_handler(proxyserver, client, upstream)
    proxyserver.connections[client.id].transports[upstream].handler = None
    assert cut(lambda _: True) == 0


def test_a_connection_that_could_not_be_opened_is_not_kept(proxyserver: Proxyserver) -> None:
    client, failed, open_ = tflow.tclient_conn(), tflow.tserver_conn(), tflow.tserver_conn()
    add_handler(proxyserver, client, failed, open_)
    forget_failed(client, failed)
    assert set(proxyserver.connections[client.id].transports) == {client, open_}
