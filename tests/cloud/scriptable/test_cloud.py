"""The cloud as a whole: started, stopped and started again, over TLS, with a log of what it was asked."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest

from tests.cloud.caller import Caller
from tests.cloud.pki import Authority
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.cloud.scriptable.request_log import matching

SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
SERVICES = "/api/v1/services"


async def test_a_stopped_cloud_refuses_and_comes_back_as_it_was(
    cloud: ScriptableCloud, caller: Caller
) -> None:
    cloud.store.create(SERVICE)
    url, version = cloud.url, cloud.store.version
    async with caller.watch(SERVICES, resourceVersion=str(version)) as stream:
        await cloud.stop()
        with pytest.raises((aiohttp.ClientPayloadError, EOFError)):
            await stream.next()
    with pytest.raises(aiohttp.ClientConnectorError):
        await caller.get(SERVICES)
    await cloud.start()
    assert cloud.url == url
    answer = await caller.get(SERVICES)
    assert (answer["metadata"]["resourceVersion"], len(answer["items"])) == (str(version), 1)


async def test_stopping_does_not_wait_for_those_who_wait(cloud: ScriptableCloud, caller: Caller) -> None:
    async with caller.watch(SERVICES), caller.watch("/api/v1/nodes"):
        async with asyncio.timeout(1):
            await cloud.stop()
    assert len(cloud.requests) == 2


async def test_the_log_of_requests(cloud: ScriptableCloud, caller: Caller) -> None:
    cloud.access.tokens["t"] = User("alice")
    headers = {
        "User-Agent": "kubelet/v1.36.0 (linux)",
        "Accept": "application/json;q=0.9",
        "Authorization": "Bearer t",
    }
    await caller.send("GET", SERVICES, headers=headers, query={"limit": "5"})
    await caller.send("GET", "/api/v1/namespaces/x/pods/none")
    await caller.send("POST", "/api/v1/namespaces/x/serviceaccounts/none/token")
    async with caller.watch(SERVICES):
        pass
    first, second, third, fourth = cloud.requests
    assert (first.method, first.path, first.query, first.user) == ("GET", SERVICES, "limit=5", "alice")
    assert (first.user_agent, first.accept) == (headers["User-Agent"], headers["Accept"])
    assert (first.verb, first.resource, first.status) == ("list", "services", 200)
    assert (second.verb, second.user, second.status) == ("get", "system:anonymous", 404)
    assert (third.resource, fourth.verb, fourth.status) == ("serviceaccounts/token", "watch", 200)
    assert cloud.requests.count(verb="list", resource="services") == 1
    assert cloud.requests.where(matching(user="alice")) == [first]
    cloud.requests.clear()
    assert len(cloud.requests) == 0


async def test_over_tls_a_certificate_says_who_calls(tmp_path: Path) -> None:
    authority = Authority()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.issue_server("cloud", ["127.0.0.1"]).write(tmp_path, "server"))
    server.load_verify_locations(cadata=authority.certificate.decode())
    server.verify_mode = ssl.CERT_OPTIONAL
    client = ssl.create_default_context(cadata=authority.certificate.decode())
    client.load_cert_chain(*authority.issue_node("n1").write(tmp_path, "node"))
    async with ScriptableCloud(tls=server) as cloud, Caller(cloud.url, context=client) as caller:
        cloud.access.certificates["system:node:n1"] = User("system:node:n1", ("system:nodes",))
        assert cloud.url.startswith("https://")
        assert (await caller.send("GET", SERVICES)).status == 200
        assert [request.user for request in cloud.requests] == ["system:node:n1"]


async def test_the_removed_version_of_endpointslices(cloud: ScriptableCloud, caller: Caller) -> None:
    """No real server serves v1beta1 any more; both versions watch the same objects."""
    v1beta1 = "/apis/discovery.k8s.io/v1beta1/namespaces/default/endpointslices"
    version = str(cloud.store.version)
    async with (
        caller.watch(v1beta1, resourceVersion=version) as old,
        caller.watch("/apis/discovery.k8s.io/v1/endpointslices", resourceVersion=version) as new,
    ):
        endpoint = {"addresses": ["10.0.0.1"], "nodeName": "n", "topology": {"kubernetes.io/hostname": "n"}}
        await caller.post(
            v1beta1, {"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [endpoint]}
        )
        shown = [(await stream.next())["object"] for stream in (old, new)]
    assert [value["apiVersion"] for value in shown] == ["discovery.k8s.io/v1beta1", "discovery.k8s.io/v1"]
    assert shown[0]["endpoints"] == [endpoint]
    assert shown[1]["endpoints"] == [{"addresses": ["10.0.0.1"], "nodeName": "n"}]
