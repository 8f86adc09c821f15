"""The assembled parts in a running mitmproxy, on a scriptable cloud, and their complete removal."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import aiohttp
import pytest
import yaml
from mitmproxy.addonmanager import Loader
from mitmproxy.options import Options as MitmproxyOptions
from mitmproxy.test import taddons

from addons.assembly import Assembly, RequestParts
from addons.connections import Connections
from addons.console import Console
from addons.egress import Egress
from addons.identity import Identity
from addons.offline.offline_tables import OfflineTables
from addons.options import Options
from addons.proxy.hub_addon import HubAddon
from addons.proxy.master import HubMaster
from addons.proxy.own_listeners import OwnListeners
from addons.requests.caller import CredentialSource
from addons.resolve import Resolve
from addons.router import Router
from addons.server.limits.open_connections import OpenConnections
from addons.settings import Settings, parse_settings
from addons.telemetry.log import Level, log_to_stderr
from addons.traffic import Traffic
from addons.ui.hub_records import Records
from addons.ui.reports.text import status_text
from tests.addons.support.hub_of import assembly
from tests.addons.support.observed import STEP, ended, until
from tests.addons.support.samples import SERVICES, cloud_service, config_map, secret, service
from tests.cloud.kubeconfig import write_kubeconfig
from tests.cloud.pki import Authority
from tests.cloud.ports import free_port
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User
from tests.cloud.scriptable.faults import Silence

LOOPBACK = "127.0.0.1"


class Running:
    """A hub in this process: a new instance of the chain of `addons.hub`."""

    def __init__(self, session: aiohttp.ClientSession, folder: Path, given: dict[str, Any]) -> None:
        ports = {name: free_port() for name in ("port", "tls_port", "admin_port")}
        self.given: dict[str, Any] = {"state_dir": str(folder / "state"), "peer_port": 0, **ports, **given}
        self.url = f"http://{LOOPBACK}:{self.given['port']}"
        self.tls_url = f"https://{LOOPBACK}:{self.given['tls_port']}"
        self.admin = f"http://{LOOPBACK}:{self.given['admin_port']}"
        self.session = session
        options, self.listeners = Options(), OwnListeners()
        records = Records()
        self.traffic = Traffic(records)
        opened = OpenConnections(1_000)
        self.resolve, self.egress = Resolve(), Egress(opened)
        steps = RequestParts(self.resolve, Identity(options), Router(self.egress.relay), self.egress)
        console = Console(options)
        self.assembly = Assembly(options, self.listeners, steps, records, console)
        chain = [self.listeners, options, Connections(opened), *steps, self.traffic, self.assembly]
        self.addon = HubAddon(lambda: chain)
        self.master = HubMaster(MitmproxyOptions(), self.addon)
        self.master.options.update(
            server=False, **{f"hub_{name}": value for name, value in self.given.items()}
        )

    async def get(self, url: str, **how: Any) -> tuple[int, Any]:
        async with self.session.get(url, **how) as response:
            text = await response.text()
            return response.status, await response.json() if "json" in response.content_type else text

    async def ready(self) -> None:
        async with asyncio.timeout(10):
            while True:
                try:
                    if (await self.get(f"{self.admin}/readyz?exclude=node"))[0] == 200:
                        return
                except aiohttp.ClientConnectionError:
                    pass
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(folder: Path, **given: Any) -> AsyncIterator[Running]:
    before = asyncio.all_tasks()
    async with aiohttp.ClientSession() as session:
        made = Running(session, folder, given)
        task = asyncio.create_task(made.master.run())
        try:
            yield made
        finally:
            made.master.should_exit.set()
            await task
            # mitmproxy itself never closes its listeners.
            await made.master.addons.get("proxyserver").servers.update([])
    await ended(before)


async def test_all_listeners_serve_and_the_rules_are_in_force(tmp_path: Path, cloud: ScriptableCloud) -> None:
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
    cloud.store.create(config_map({"filter_discardcloudservice": "chosen/services"}))
    async with running(tmp_path, server=cloud.url, node="n1") as hub:
        await hub.ready()
        for component, names in (("chosen", ["web"]), ("kubectl", ["lb", "web"])):
            code, found = await hub.get(hub.url + SERVICES, headers={"User-Agent": f"{component}/1"})
            assert (code, [item["metadata"]["name"] for item in found["items"]]) == (200, names)
        trusting = ssl.create_default_context(cafile=hub.given["state_dir"] + "/pki/ca.crt")
        code, found = await hub.get(f"{hub.tls_url}/version", ssl=trusting)
        assert (code, found["major"]) == (200, "1")


@pytest.mark.parametrize(
    "body", [b"{}", b"GET /x HTTP/1.1\r\n\r\n", bytes(100_000)], ids=["short", "a request", "long"]
)
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_the_body_of_a_list_request_is_ignored(
    tmp_path: Path, cloud: ScriptableCloud, body: bytes, is_chunked: bool
) -> None:
    """Like kube-apiserver: `tests/cloud/contract/test_lists.py` tests the real one."""

    async def chunks() -> AsyncIterator[bytes]:
        yield body

    cloud.store.create(service("web"))
    cloud.store.create(config_map({"cache_agents": "cached"}))
    async with running(tmp_path, server=cloud.url) as hub:
        await hub.ready()
        headers, url = {"User-Agent": "cached/1"}, f"{hub.url}{SERVICES}?resourceVersion=0"
        for _ in range(2):  # the connection is still usable
            code, found = await hub.get(url, headers=headers, data=chunks() if is_chunked else body)
            assert (code, [item["metadata"]["name"] for item in found["items"]]) == (200, ["web"])


async def test_the_hubs_own_requests_have_its_user_agent(tmp_path: Path, cloud: ScriptableCloud) -> None:
    async with running(tmp_path, server=cloud.url) as hub:
        await hub.ready()
        assert {each.user_agent for each in cloud.requests} == {"edgehub"}


@pytest.mark.parametrize("level", get_args(Level))
@pytest.mark.usefixtures("root_logger")
async def test_no_log_level_reveals_a_secret(
    tmp_path: Path, cloud: ScriptableCloud, capsys: pytest.CaptureFixture[str], level: str
) -> None:
    """mitmproxy's own programs set every library to DEBUG, and a library may do so itself."""
    token, value = "a-token-of-a-pod", "c2VjcmV0IG9mIGEgcG9k"
    cloud.access.tokens[token] = User("pod", ())
    cloud.store.create(secret(password=value))
    log_to_stderr(level, "text")
    if level == "debug":
        logging.getLogger().setLevel(logging.DEBUG)
    async with running(tmp_path, server=cloud.url) as hub:
        await hub.ready()
        headers = {"Authorization": f"Bearer {token}", "User-Agent": "kubelet/1"}
        secrets = "/api/v1/namespaces/default/secrets"
        for path in (f"{secrets}/s", f"{secrets}?resourceVersion=0", f"{SERVICES}?resourceVersion=0"):
            assert (await hub.get(hub.url + path, headers=headers))[0] == 200
    errors = capsys.readouterr().err
    assert not [each for each in (token, value) if each in errors]
    assert "hpack" not in errors


async def test_an_exec_plugin_runs_at_startup_and_after_a_401(tmp_path: Path, cloud: ScriptableCloud) -> None:
    exec_version = "client.authentication.k8s.io/v1"
    cloud.access.anonymous = False
    cloud.access.tokens["one"] = User("somebody")
    token, plugin = tmp_path / "token", tmp_path / "plugin"
    token.write_text("one")
    answer = '{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"%s"}}'
    plugin.write_text(f"#!/bin/sh\nprintf '{answer}' {exec_version} $(cat {token})\n")
    plugin.chmod(0o755)
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", cloud.url)
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"exec": {"apiVersion": exec_version, "command": "./plugin"}}
    kubeconfig.write_text(yaml.safe_dump(document))
    async with running(tmp_path, kubeconfig=str(kubeconfig)) as hub:
        await hub.ready()
        assert (await hub.get(f"{hub.url}/api/v1/nodes"))[0] == 200
        token.write_text("two")
        cloud.access.tokens = {"two": User("somebody")}
        assert (await hub.get(f"{hub.url}/api/v1/nodes"))[0] == 401
        server = hub.egress.link.choose()
        assert server is not None
        pool_key = hub.egress.link.pool_key(server, CredentialSource.HUB, "")
        await until(lambda: hub.egress.link.bearer(pool_key) == "Bearer two", 60.0)
        assert (await hub.get(f"{hub.url}/api/v1/nodes"))[0] == 200


async def test_an_edit_of_the_rules_reaches_views(tmp_path: Path, cloud: ScriptableCloud) -> None:
    cloud.store.create(cloud_service("lb"))
    cloud.store.create(config_map({"cache_agents": "cached"}))
    async with running(tmp_path, server=cloud.url) as hub:
        await hub.ready()
        headers = {"User-Agent": "cached/1"}
        url = f"{hub.url}{SERVICES}?watch=true&resourceVersion=0"
        async with hub.session.get(url, headers=headers) as watch:
            assert b'"ADDED"' in await watch.content.readline()
            edited = cloud.store.get("configmaps", "yurt-hub-cfg", "kube-system")
            edited["data"]["filter_discardcloudservice"] = "cached/services"
            cloud.store.update(edited)
            async with asyncio.timeout(10):
                assert b'"DELETED"' in await watch.content.readline()


@pytest.mark.parametrize("off", ["port", "tls_port", "admin_port"])
async def test_port_zero_switches_a_listener_off(tmp_path: Path, cloud: ScriptableCloud, off: str) -> None:
    async with running(tmp_path, server=cloud.url, **{off: 0}) as hub:
        open_ports = [hub.given[name] for name in ("port", "tls_port", "admin_port") if hub.given[name]]
        for port in open_ports:
            await opened(port)
        await until(lambda: hub.egress.link.cloud.servers)  # the key exists before the port opens
        assert (tmp_path / "state" / "pki").exists() is (off != "tls_port"), "no key is made for nobody"


async def opened(port: int) -> None:
    """Return once the port has a listener."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection(LOOPBACK, port)
            except ConnectionRefusedError:
                await asyncio.sleep(STEP)
            else:
                writer.close()
                await writer.wait_closed()
                return


@pytest.mark.parametrize("name", ["port", "tls_port", "admin_port"])
async def test_a_used_port_ends_the_start_in_one_line(
    tmp_path: Path, cloud: ScriptableCloud, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    async with aiohttp.ClientSession() as session:
        with socket.create_server((LOOPBACK, 0)) as taken:
            port = taken.getsockname()[1]
            hub = Running(session, tmp_path, {"server": cloud.url, name: port})
            with pytest.raises(SystemExit) as caught:
                await hub.assembly._open()
        assert caught.value.code == 1
        (line,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
        assert f"hub_{name}: cannot listen on {LOOPBACK}:{port}: Address already in use" in line
        await hub.master.addons.get("proxyserver").servers.update([])
        hub.addon.done()
    await ended(before)


async def test_an_unusable_kubeconfig_ends_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def settings(**given: Any) -> Settings:
        return parse_settings({"server": "https://a:6443", **given})

    options = Options()
    options.settings = settings(kubeconfig=str(tmp_path / "none"))
    with pytest.raises(SystemExit) as caught:
        await assembly(options)._open()
    assert caught.value.code == 1
    assert str(tmp_path / "none") in caplog.text


async def test_a_client_is_answered_once_the_hub_is_assembled(
    tmp_path: Path, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the hub reads the disk its ports are closed; clients that connect afterwards get responses."""
    opening, go_on = asyncio.Event(), asyncio.Event()
    proper = OfflineTables.open

    async def wait(self: OfflineTables) -> None:
        opening.set()
        await go_on.wait()
        await proper(self)

    monkeypatch.setattr(OfflineTables, "open", wait)
    async with running(tmp_path, server=cloud.url) as hub:
        await opening.wait()
        for name in ("port", "tls_port", "admin_port"):
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(LOOPBACK, hub.given[name])
        go_on.set()
        await hub.ready()
        assert (await hub.get(f"{hub.url}/version"))[0] == 200


async def test_the_hub_is_not_ready_while_a_listener_is_closed(
    tmp_path: Path, cloud: ScriptableCloud
) -> None:
    async with running(tmp_path, server=cloud.url) as hub:
        await hub.ready()
        servers = hub.master.addons.get("proxyserver").servers
        retained = [
            each.mode for each in servers if not each.mode.full_spec.endswith(f":{hub.given['tls_port']}")
        ]
        await servers.update(retained)
        address = f"{LOOPBACK}:{hub.given['tls_port']}"
        with socket.create_server((LOOPBACK, hub.given["tls_port"])):
            code, why = await hub.get(f"{hub.admin}/readyz")
            assert (code, why) == (503, f"not open: {address}\n")
            _, report = await hub.get(f"{hub.admin}/debug/status")
            assert status_text(report).startswith(f"NOT OPEN: {address}\n")
        await hub.ready()
        assert hub.listeners.closed() == []


@pytest.mark.parametrize(("are_flags", "name"), [(False, "hub_peer_port"), (True, "--peer-port")])
async def test_the_hub_is_not_ready_while_the_peer_port_is_in_use(
    tmp_path: Path, cloud: ScriptableCloud, monkeypatch: pytest.MonkeyPatch, are_flags: bool, name: str
) -> None:
    monkeypatch.setattr(Options, "are_flags", are_flags)
    pair = Authority().issue_server("relay", [LOOPBACK]).write(tmp_path, "peer")
    relay = {"peer_clients": "nodes", "mode": "cloud", "peer_address": LOOPBACK}
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        given = {**relay, "peer_port": port, "peer_cert": str(pair[0]), "peer_key": str(pair[1])}
        async with running(tmp_path, server=cloud.url, **given) as hub:
            await opened(hub.given["admin_port"])
            async with asyncio.timeout(20):
                while True:
                    code, why = await hub.get(f"{hub.admin}/readyz")
                    if "not open" in why:
                        break
                    await asyncio.sleep(0.01)
    assert code == 503
    assert f"{name}: cannot listen on {LOOPBACK}:{port}: Address already in use" in why


async def test_a_second_load_into_the_same_mitmproxy_ends_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A user removed the script from mitmproxy's options, and added it again."""
    with taddons.context() as context:
        HubAddon(list).load(Loader(context.master))
        with pytest.raises(SystemExit) as caught:
            HubAddon(list).load(Loader(context.master))
    assert caught.value.code == 1
    assert "a second time" in caplog.text


async def test_the_hub_is_not_ready_while_the_cloud_is_silent(tmp_path: Path, cloud: ScriptableCloud) -> None:
    silence = cloud.faults.add(Silence(), times=None)
    async with running(tmp_path, server=cloud.url, wait=1) as hub:
        await opened(hub.given["admin_port"])
        assert (await hub.get(f"{hub.admin}/readyz"))[0] == 503
        code, found = await hub.get(hub.url + SERVICES, headers={"User-Agent": "kubelet/1"})
        assert (code, found["reason"]) == (503, "ServiceUnavailable")
        silence.lift()


def test_done_before_the_start_is_ignored() -> None:
    alone = assembly(Options())
    alone.done()
    alone.done()
