"""The cloud as a whole: started, stopped and started again, over TLS, with a log of what it was asked."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import aiohttp
import pytest

from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.cloud.caller import Caller
from tests.cloud.pki import Authority
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.cloud.scriptable.protobuf import encode_message
from tests.cloud.scriptable.request_log import matching
from tests.cloud.scriptable.resources import RESOURCES, Resource, Trait

SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
SERVICES = "/api/v1/services"


async def test_it_is_ready_once_it_is_entered() -> None:
    async with (
        ScriptableCloud() as cloud,
        aiohttp.ClientSession() as session,
        session.get(f"{cloud.url}/readyz") as response,
    ):
        assert await response.text() == "ok"


async def test_objects_of_a_test_are_served_and_writes_are_seen(
    cloud: ScriptableCloud, caller: Caller
) -> None:
    cloud.store.create(SERVICE)
    assert (await caller.get("/api/v1/namespaces/default/services/s"))["metadata"]["name"] == "s"
    await caller.delete("/api/v1/namespaces/default/services/s")
    assert cloud.store.list("services") == []


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


def test_it_has_no_url_before_it_was_started() -> None:
    with pytest.raises(RuntimeError, match="never started"):
        _ = ScriptableCloud().url


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


async def test_what_cannot_be_parsed_is_logged_too(cloud: ScriptableCloud, caller: Caller) -> None:
    reply = await caller.send("GET", "/api/v1/services?limit=x")
    assert (reply.status, [request.status for request in cloud.requests]) == (400, [400])
    assert [(request.verb, request.resource) for request in cloud.requests] == [("", "")]


async def test_a_forbidden_user(cloud: ScriptableCloud, caller: Caller) -> None:
    cloud.access.allowed["system:anonymous"] = lambda info: info.verb != "watch"
    assert (await caller.send("GET", SERVICES)).status == 200
    assert (await caller.send("GET", SERVICES, query={"watch": "1"})).status == 403
    question = {"spec": {"resourceAttributes": {"verb": "watch", "resource": "services"}}}
    review = await caller.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", question)
    assert review["status"] == {"allowed": False}
    question = {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/version"}}}
    review = await caller.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", question)
    assert review["status"] == {"allowed": True}


async def test_a_token_is_good_for_its_service_account(cloud: ScriptableCloud, caller: Caller) -> None:
    cloud.store.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}})
    answer = await caller.post("/api/v1/namespaces/default/serviceaccounts/sa/token", {})
    token = {"Authorization": f"Bearer {answer['status']['token']}"}
    reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    review = await caller.send("POST", reviews, body={}, headers=token)
    assert review.json()["status"]["userInfo"]["username"] == "system:serviceaccount:default:sa"
    reply = await caller.send("POST", reviews, body={}, headers={"Authorization": "Bearer other"})
    assert reply.status == 401


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


async def test_a_resource_is_installed_and_removed(cloud: ScriptableCloud, caller: Caller) -> None:
    pools = "/apis/apps.openyurt.io/v1beta2/nodepools"
    assert (await caller.send("GET", pools)).status == 200
    cloud.resources.remove("nodepools")
    assert (await caller.send("GET", pools)).status == 404
    grids = Resource("superedge.io", "v1", "servicegrids", "ServiceGrid", Trait.CUSTOM)
    cloud.resources.add(grids)
    cloud.store.create({"apiVersion": "superedge.io/v1", "kind": "ServiceGrid", "metadata": {"name": "g"}})
    assert len((await caller.get("/apis/superedge.io/v1/servicegrids"))["items"]) == 1


async def test_every_resource_can_be_listed(cloud: ScriptableCloud, caller: Caller) -> None:
    for resource in RESOURCES:
        if Trait.QUESTION in resource.traits:
            continue
        root = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
        answer = await caller.get(f"{root}/{resource.name}")
        assert (answer["kind"], answer["apiVersion"]) == (f"{resource.kind}List", resource.api_version)


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


async def test_recorded_objects_reach_protobuf_clients(cloud: ScriptableCloud, caller: Caller) -> None:
    value = {**SERVICE, "metadata": {"name": "s", "namespace": "default"}}
    unknown_field = b"\xfa\x3e\x03abc"
    cloud.store.put_raw("services", encode_message(value) + unknown_field, value)
    codec = codec_for(Encoding.PROTOBUF)
    protobuf = {"Accept": str(Encoding.PROTOBUF)}
    page = codec.decode_list((await caller.send("GET", SERVICES, headers=protobuf)).body)
    assert page.items[0].endswith(unknown_field)
    asked = {"resourceVersion": str(cloud.store.version), "timeoutSeconds": "1"}
    async with caller.watch(SERVICES, protobuf, **asked) as stream:
        cloud.store.delete("services", "s", "default")
        frames = codec.frames().feed(await stream.raw())
    assert frames[0].raw.endswith(unknown_field)
    assert codec.peek(frames[0].raw).version == cloud.store.version


async def test_a_slow_client_loses_its_watch(cloud: ScriptableCloud, caller: Caller) -> None:
    cloud.watches.queue_limit = 5
    async with caller.watch("/api/v1/configmaps", resourceVersion=str(cloud.store.version)) as stream:
        text = "x" * 1_000_000
        for number in range(50):
            value = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"c{number}"},
                "data": {"x": text},
            }
            cloud.store.create(value)
        events = (await stream.raw()).splitlines()
    assert 5 <= len(events) < 50
    assert [json.loads(event)["object"]["metadata"]["name"] for event in events] == [
        f"c{number}" for number in range(len(events))
    ]
