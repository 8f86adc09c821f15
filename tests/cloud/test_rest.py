"""JSON over HTTP to the real API server, and to one that misbehaves."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from kube.json_type import Json
from tests.cloud.fixtures import OpenLink
from tests.cloud.ports import LOOPBACK, ReservedPort
from tests.cloud.real import RealCloud
from tests.cloud.rest import JSON_PATCH, STRATEGIC_PATCH, Answer, RestClient, RestError

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


def test_an_answer_that_is_no_object() -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        Answer(200, {}, b"[]").json()


def test_create_read_change_delete(real_cloud: RealCloud, maps: str) -> None:
    admin = real_cloud.admin
    assert admin.post(maps, config_map("a", x="1"))["data"] == {"x": "1"}
    assert admin.patch(f"{maps}/a", {"data": {"y": "2"}})["data"] == {"x": "1", "y": "2"}
    assert admin.patch(f"{maps}/a", {"data": {"y": None}}, STRATEGIC_PATCH)["data"] == {"x": "1"}
    patch = [{"op": "replace", "path": "/data/x", "value": "3"}]
    assert admin.patch(f"{maps}/a", patch, JSON_PATCH)["data"] == {"x": "3"}
    assert admin.put(f"{maps}/a", config_map("a", z="4"))["data"] == {"z": "4"}
    admin.post(maps, config_map("b"))
    names = [item["metadata"]["name"] for item in admin.get(maps, fieldSelector="metadata.name!=a")["items"]]
    assert names == ["b"]
    assert admin.delete(f"{maps}/a")["status"] == "Success"
    assert admin.request("GET", f"{maps}/a").status == 404


def test_an_error_tells_the_question_and_the_answer(real_cloud: RealCloud, maps: str) -> None:
    with pytest.raises(RestError, match=rf'GET {maps}/a: 404 .*"reason":"NotFound"') as caught:
        real_cloud.admin.get(f"{maps}/a")
    assert caught.value.answer.json()["code"] == 404


def test_any_request_gets_its_answer(real_cloud: RealCloud, maps: str) -> None:
    refused = real_cloud.admin.request("POST", maps, body=b"x", headers={"Content-Type": "text/plain"})
    assert refused.status == 415
    listed = real_cloud.admin.request(
        "GET", maps, query={"limit": "1"}, headers={"Accept": "application/yaml"}
    )
    assert (listed.status, listed.headers["Content-Type"]) == (200, "application/yaml")
    assert listed.body.startswith(b"apiVersion: v1\n")


def test_a_watch_yields_events_as_they_come(real_cloud: RealCloud, maps: str) -> None:
    admin = real_cloud.admin
    version = admin.post(maps, config_map("a"))["metadata"]["resourceVersion"]
    with closing(admin.watch(maps, timeout=TIMEOUT, resourceVersion=version)) as events:
        admin.patch(f"{maps}/a", {"data": {"x": "1"}})
        event = next(events)
        assert (event.type, event.object["data"]) == ("MODIFIED", {"x": "1"})
        admin.delete(f"{maps}/a")
        assert next(events).type == "DELETED"


def test_a_watch_ends_with_the_server(real_cloud: RealCloud, maps: str) -> None:
    assert list(real_cloud.admin.watch(maps, timeout=TIMEOUT, timeoutSeconds="1")) == []


def test_a_quiet_watch_is_given_up(real_cloud: RealCloud, maps: str) -> None:
    with pytest.raises(TimeoutError, match="timed out"):
        next(real_cloud.admin.watch(maps, timeout=0.05))


def test_a_refused_watch(real_cloud: RealCloud, maps: str) -> None:
    with pytest.raises(RestError, match=r"watch /api/.*: 400 .*unable to parse requirement"):
        next(real_cloud.admin.watch(maps, timeout=TIMEOUT, labelSelector="a in"))


def test_a_torn_watch(torn: str) -> None:
    with RestClient(torn) as client:
        events = client.watch("/", timeout=TIMEOUT)
        assert next(events).type == "ADDED"
        with pytest.raises(ConnectionError, match="Connection broken"):
            next(events)


def test_wait_for_what_is_there_and_for_what_comes(real_cloud: RealCloud, maps: str) -> None:
    admin = real_cloud.admin
    admin.post(maps, config_map("a", x="1"))
    assert admin.wait_for(maps, "a", lambda found: "x" in found["data"], timeout=TIMEOUT)["data"] == {
        "x": "1"
    }
    later = threading.Timer(0.05, admin.patch, [f"{maps}/a", {"data": {"y": "2"}}])
    later.start()
    assert "y" in admin.wait_for(maps, "a", lambda found: "y" in found["data"], timeout=TIMEOUT)["data"]
    later.join()


def test_wait_for_what_does_not_come(real_cloud: RealCloud, maps: str) -> None:
    with pytest.raises(TimeoutError, match=r"/a is not as wanted after 0\.05 s; it is not there"):
        real_cloud.admin.wait_for(maps, "a", bool, timeout=0.05)
    real_cloud.admin.post(maps, config_map("a", x="1"))
    with pytest.raises(TimeoutError, match=r'last seen: .*"x": "1"'):
        real_cloud.admin.wait_for(maps, "a", lambda _: False, timeout=1.0)


def test_a_server_that_is_not_there() -> None:
    port = ReservedPort()
    with RestClient(f"http://{LOOPBACK}:{port.number}") as client, pytest.raises(OSError, match="refused"):
        client.get("/version")
    port.release()


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
