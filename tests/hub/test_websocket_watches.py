"""Watches over WebSocket, like fabric8's: cached, filtered and relayed, on both ports, and in an outage."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from addons.requests.websocket_watch import MAX_SENT
from kube.json_type import Json
from kube.wire.encoding import Encoding
from kube.wire.protobuf_codec import ProtobufFrameReader
from tests.addons.support.samples import cloud_service, config_map, service
from tests.cloud.link import Link
from tests.cloud.ports import LOOPBACK
from tests.cloud.real import RealCloud
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.hub.support.objects import set_rules
from tests.hub.support.outage import Outage
from tests.hub.support.process import Hub, started
from tests.hub.support.site import hub_before

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/services"
CACHED = {"User-Agent": "cached/v1"}
RULES = {"cache_agents": "cached", "discardcloudservice": "filtered"}
WAIT = 30.0
BEARER = "base64url.bearer.authorization.k8s.io."

type Socket = aiohttp.ClientWebSocketResponse[bool]


@pytest.fixture
async def outage(tmp_path: Path, cloud: ScriptableCloud) -> AsyncIterator[Outage]:
    """Run a hub with rules, behind a link."""
    cloud.store.create(config_map(RULES))
    host, _, port = cloud.url.removeprefix("http://").partition(":")
    link = await asyncio.to_thread(Link, host, int(port))
    try:
        async with started(Hub(tmp_path, f"http://{link.host}:{link.port}")) as hub:
            yield Outage(hub, link)
    finally:
        await asyncio.to_thread(link.close)


@asynccontextmanager
async def watch(
    url: str,
    path: str = CONFIGMAPS,
    headers: Mapping[str, str] = CACHED,
    *,
    protocols: tuple[str, ...] = (),
    context: ssl.SSLContext | bool = True,
) -> AsyncIterator[Socket]:
    all_headers = {"Origin": url, "Accept": "application/json", **headers}
    target = f"{url}{path}{'&' if '?' in path else '?'}watch=true"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            target, headers=all_headers, protocols=protocols, ssl=context, autoping=False, autoclose=False
        ) as socket,
    ):
        yield socket


async def event(socket: Socket) -> tuple[str, str]:
    """Return type and name in the next event, which is one text message."""
    message = await asyncio.wait_for(socket.receive(), WAIT)
    assert message.type is aiohttp.WSMsgType.TEXT, message
    assert message.data.endswith("\n"), "as from kube-apiserver"
    read = json.loads(message.data)
    return read["type"], read["object"]["metadata"]["name"]


def named(name: str, **data: str) -> Json:
    return config_map(data, name=name) | {"metadata": {"name": name, "namespace": "default"}}


async def test_each_event_is_one_websocket_message(outage: Outage, cloud: ScriptableCloud) -> None:
    cloud.store.create(named("first"))
    async with watch(outage.hub.url, protocols=("v4.channel.k8s.io",)) as socket:
        assert socket.protocol == "v4.channel.k8s.io"
        assert await event(socket) == ("ADDED", "first")
        for number in range(50):
            cloud.store.create(named(f"x{number}", text="é\n" * number * 100))
        assert [await event(socket) for _ in range(50)] == [("ADDED", f"x{number}") for number in range(50)]
        await socket.ping(b"who")
        pong = await asyncio.wait_for(socket.receive(), WAIT)
        assert (pong.type, bytes(pong.data)) == (aiohttp.WSMsgType.PONG, b"who")
        await socket.send_str("nobody reads this")
        cloud.store.create(named("last"))
        assert await event(socket) == ("ADDED", "last")
        assert outage.hub.metric("edgehub_watchers", resource="configmaps") == 1
        await socket.close()
        assert socket.close_code == aiohttp.WSCloseCode.OK
    await asyncio.to_thread(outage.hub.wait_for_metric, "edgehub_watchers", 0, WAIT, resource="configmaps")


async def test_a_websocket_watch_continues_in_an_outage_and_after_it(
    outage: Outage, cloud: ScriptableCloud
) -> None:
    cloud.store.create(named("first"))
    async with watch(outage.hub.url) as before:
        assert await event(before) == ("ADDED", "first")
        async with outage.away(), watch(outage.hub.url) as within:
            assert await event(within) == ("ADDED", "first")
            cloud.store.create(named("later"))
        assert await event(before) == ("ADDED", "later")


async def test_filters_apply_to_a_websocket_watch(outage: Outage, cloud: ScriptableCloud) -> None:
    cloud.store.create(cloud_service("hidden"))
    cloud.store.create(service("shown"))
    async with watch(outage.hub.url, SERVICES, {"User-Agent": "filtered/v1"}) as socket:
        assert await event(socket) == ("ADDED", "shown")
        cloud.store.create(cloud_service("hidden-too"))
        cloud.store.create(service("another"))
        assert await event(socket) == ("ADDED", "another")


async def test_protobuf_events_are_binary_messages(outage: Outage, cloud: ScriptableCloud) -> None:
    cloud.store.create(named("first"))
    protobuf = f"{Encoding.PROTOBUF};stream=watch"
    async with watch(outage.hub.url, headers=CACHED | {"Accept": protobuf}) as socket:
        message = await asyncio.wait_for(socket.receive(), WAIT)
        assert message.type is aiohttp.WSMsgType.BINARY
        framed = len(message.data).to_bytes(4) + message.data
        (frame,) = ProtobufFrameReader().feed(framed)
        assert (frame.type, frame.kind) == ("ADDED", "ConfigMap")


async def test_a_token_in_the_subprotocols_is_the_callers_credential(
    outage: Outage, cloud: ScriptableCloud
) -> None:
    """Browsers send it this way. It decides what the caller may read, on the port that never uses the hub's
    permissions."""
    cloud.access.tokens["known"] = User("reader")
    cloud.store.create(named("first"))
    context = await asyncio.to_thread(ssl.create_default_context, cafile=outage.hub.authority)
    token = BEARER + base64.urlsafe_b64encode(b"known").decode().rstrip("=")
    async with watch(outage.hub.tls_url, protocols=(token, "v1.channel"), context=context) as socket:
        assert socket.protocol == "v1.channel"
        assert await event(socket) == ("ADDED", "first")
    cloud.access.allowed["reader"] = lambda info: info.type is None or info.type.resource != "services"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with watch(outage.hub.tls_url, SERVICES, protocols=(token, "v1.channel"), context=context):
            pass
    assert refused.value.status == 403
    cloud.access.tokens.clear()


async def test_a_watch_that_times_out_closes_the_websocket_normally(outage: Outage) -> None:
    async with watch(outage.hub.url, f"{CONFIGMAPS}?timeoutSeconds=1") as socket:
        message = await asyncio.wait_for(socket.receive(), WAIT)
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.OK)


async def test_a_websocket_client_that_sends_too_much_is_closed(
    outage: Outage, cloud: ScriptableCloud
) -> None:
    cloud.store.create(named("first"))
    async with watch(outage.hub.url) as socket:
        assert await event(socket) == ("ADDED", "first")
        await socket.send_bytes(os.urandom(MAX_SENT + 1))
        message = await asyncio.wait_for(socket.receive(), WAIT)
        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.MESSAGE_TOO_BIG)
    bound = partial(outage.hub.metric, "edgehub_bounds_reached_total")
    assert await asyncio.to_thread(bound, bound="sent behind a watch by WebSocket") == 1


async def test_unread_pongs_of_a_websocket_are_bounded(outage: Outage, cloud: ScriptableCloud) -> None:
    """The client sends pings of 125 bytes up to the bound and reads no response: only the newest is answered."""
    cloud.store.create(named("first", text="x" * 500_000))
    reader, writer = await asyncio.open_connection(LOOPBACK, outage.hub.port, limit=1024)
    lines = (
        f"GET {CONFIGMAPS}?watch=true HTTP/1.1",
        f"Host: 127.0.0.1:{outage.hub.port}",
        f"Origin: {outage.hub.url}",
        "User-Agent: cached/v1",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    writer.write("\r\n".join((*lines, "", "")).encode())
    assert (await reader.readline()).split()[1] == b"101"
    ping = b"\x89\xfd" + bytes(4) + bytes(125)
    writer.write(ping * (MAX_SENT // len(ping)))
    await asyncio.wait_for(writer.drain(), WAIT)
    async with watch(outage.hub.url) as other:
        assert await event(other) == ("ADDED", "first")
    writer.transport.abort()
    await asyncio.to_thread(outage.hub.wait_for_metric, "edgehub_watchers", 0, WAIT, resource="configmaps")


@pytest.fixture
def rules(real_cloud: RealCloud) -> Iterator[Callable[..., None]]:
    """Set the rules; restore them after the test."""
    yield partial(set_rules, real_cloud)
    set_rules(real_cloud)


async def test_a_websocket_watch_is_opened_and_refused_like_by_kube_apiserver(
    real_cloud: RealCloud, rules: Callable[..., None], tmp_path: Path
) -> None:
    async def raw_answer(
        url: str, context: ssl.SSLContext | None, *lines: str
    ) -> tuple[bytes, dict[bytes, bytes]]:
        """Return status and headers of the response to a watch with these lines."""
        host, _, port = url.partition("://")[2].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        head = (f"GET {CONFIGMAPS}?watch=true&timeoutSeconds=1 HTTP/1.1", f"Host: {host}:{port}", *lines)
        writer.write("\r\n".join((*head, "", "")).encode())
        first, *fields = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT)).strip().split(b"\r\n")
        writer.transport.abort()
        return first.split()[1], dict(field.lower().split(b": ", 1) for field in fields if b": " in field)

    token = await asyncio.to_thread(real_cloud.token, "default", "default")
    readers: Json = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "websocket-readers", "namespace": "default"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}],
    }
    grant: Json = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "websocket-readers", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "websocket-readers"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }
    await asyncio.to_thread(real_cloud.apply, [readers, grant])
    await asyncio.to_thread(rules, cache_agents="cached")
    straight = await asyncio.to_thread(ssl.create_default_context, cafile=real_cloud.authority_file)
    codes = {
        "whole": b"101",
        "a subprotocol": b"101",
        "a token": b"101",
        "a token alone": b"401",
        "a bad token": b"401",
        "no origin": b"403",
        "no connection": b"200",
        "another protocol": b"200",
    }
    async with started(await asyncio.to_thread(hub_before, real_cloud, tmp_path, "edge-websocket")) as hub:
        at_hub = await asyncio.to_thread(ssl.create_default_context, cafile=hub.authority)
        upgrade = ("Connection: keep-alive, Upgrade", "Upgrade: WebSocket")
        key, version, origin = "Sec-WebSocket-Key: AAAA", "Sec-WebSocket-Version: 13", "Origin: https://here"
        encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
        known = f"Authorization: Bearer {token}"
        full = (*upgrade, key, version, origin)
        offers = {
            "whole": (known, *full),
            "a subprotocol": (known, *full, "Sec-WebSocket-Protocol: any"),
            "two subprotocols": (known, *full, "Sec-WebSocket-Protocol: any, other"),
            "a token": (*full, f"Sec-WebSocket-Protocol: any, {BEARER}{encoded}"),
            "a token alone": (*full, f"Sec-WebSocket-Protocol: {BEARER}{encoded}"),
            "a bad token": (*full, f"Sec-WebSocket-Protocol: any, {BEARER}!!"),
            "no key": (known, *upgrade, version, origin),
            "no version": (known, *upgrade, key, origin),
            "no origin": (known, *upgrade, key, version),
            "no connection": (known, "Upgrade: websocket", key, version, origin),
            "another protocol": (known, "Connection: Upgrade", "Upgrade: SPDY/3.1"),
        }
        fields = (b"upgrade", b"connection", b"sec-websocket-accept", b"sec-websocket-protocol")
        for agent in ("cached", "relayed"):
            for name, lines in offers.items():
                asked = (f"User-Agent: {agent}/v1", *lines)
                wanted, wanted_fields = await raw_answer(real_cloud.url, straight, *asked)
                found, found_fields = await raw_answer(hub.tls_url, at_hub, *asked)
                assert found == wanted == codes.get(name, b"400"), (agent, name)
                if wanted == b"101":
                    shown = [[of.get(field) for field in fields] for of in (wanted_fields, found_fields)]
                    assert shown[0] == shown[1], (agent, name)


async def test_a_relayed_websocket_watch_ends_when_the_rules_start_to_filter_it(
    real_cloud: RealCloud, rules: Callable[..., None], tmp_path: Path
) -> None:
    kubernetes = f"{SERVICES}?fieldSelector=metadata.name%3Dkubernetes"
    async with started(
        await asyncio.to_thread(hub_before, real_cloud, tmp_path, "edge-websocket-rules")
    ) as hub:
        agent = {"User-Agent": "other/v1"}
        async with watch(hub.url, kubernetes, agent) as socket:
            assert await event(socket) == ("ADDED", "kubernetes")
            await asyncio.to_thread(rules, discardcloudservice="other")
            async with asyncio.timeout(WAIT):
                async for _ in socket:
                    pass  # events in transit arrive before the end
            assert socket.closed
        async with watch(hub.url, kubernetes, agent) as socket:
            assert await event(socket) == ("ADDED", "kubernetes")
        assert hub.metric("edgehub_requests_total", component="other", route="view", code="101") == 1
