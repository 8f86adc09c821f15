"""JSON over HTTP to the real API server, and to one that misbehaves."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from kube.json_type import Json
from tests.cloud.fixtures import OpenLink
from tests.cloud.ports import LOOPBACK
from tests.cloud.real import RealCloud
from tests.cloud.rest import RestClient, RestError

TIMEOUT = 10.0
"""Seconds; for what takes milliseconds."""


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
def maps(namespace: str) -> str:
    """The path of a collection that is the test's own."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def torn() -> Iterator[str]:
    """The URL of a server that breaks off a chunked answer after one event."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    event = b'{"type":"ADDED","object":{}}\n'

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(head + b"%x\r\n%b\r\n" % (len(event), event) + b"ff\r\nhalf")

    with socket.create_server((LOOPBACK, 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://{LOOPBACK}:{server.getsockname()[1]}"
        thread.join()


def test_an_error_tells_the_question_and_the_answer(real_cloud: RealCloud, maps: str) -> None:
    with pytest.raises(RestError, match=rf'GET {maps}/a: 404 .*"reason":"NotFound"') as caught:
        real_cloud.admin.get(f"{maps}/a")
    assert caught.value.answer.json()["code"] == 404


def test_a_torn_watch(torn: str) -> None:
    with RestClient(torn) as client:
        events = client.watch("/", timeout=TIMEOUT)
        assert next(events).type == "ADDED"
        with pytest.raises(ConnectionError, match="Connection broken"):
            next(events)


def test_wait_for_what_does_not_come(real_cloud: RealCloud, maps: str) -> None:
    with pytest.raises(TimeoutError, match=r"/a is not as wanted after 0\.05 s; it is not there"):
        real_cloud.admin.wait_for(maps, "a", bool, timeout=0.05)
    real_cloud.admin.post(maps, config_map("a", x="1"))
    with pytest.raises(TimeoutError, match=r'last seen: .*"x": "1"'):
        real_cloud.admin.wait_for(maps, "a", lambda _: False, timeout=1.0)


def test_one_connection_serves_requests_in_turn(real_cloud: RealCloud, link: OpenLink) -> None:
    wire = link(real_cloud.host, real_cloud.port)
    token = real_cloud.token("default", "rest-test")
    with RestClient(
        f"https://{wire.host}:{wire.port}", authority=real_cloud.authority.certificate, token=token
    ) as client:
        for _ in range(3):
            assert client.get("/version")["gitVersion"].startswith("v1.")
        assert wire.traffic.accepted == 1
        # A connection that was lost meanwhile is replaced.
        wire.cut()
        assert client.get("/version")
    assert wire.wait(lambda traffic: traffic.open == 0, TIMEOUT).accepted == 2


def test_a_black_hole_does_not_hold_a_watch_for_ever(real_cloud: RealCloud, link: OpenLink) -> None:
    wire = link(real_cloud.host, real_cloud.port)
    token = real_cloud.token("default", "rest-test")
    with RestClient(
        f"https://{wire.host}:{wire.port}", authority=real_cloud.authority.certificate, token=token
    ) as client:
        assert client.get("/version")
        wire.black_hole()
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            next(client.watch("/api/v1/namespaces", timeout=0.1))
        assert time.monotonic() - start < TIMEOUT
