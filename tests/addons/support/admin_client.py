"""A running hub as reports read it: the hub's parts on a scriptable cloud, with rules that the test sets."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp

from addons.filters.chain import FILTERS
from addons.link.drills import Drills
from addons.link.health import Cloud, ServerHealth
from addons.link.servers import parse_server
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.rules.in_force import RulesInForce
from addons.settings import Settings, parse_settings
from addons.ui.admin import admin_server
from addons.ui.admin_port import AdminPort
from addons.ui.admin_server import AdminServer
from addons.ui.attached.attachments import Attachments
from addons.ui.page.timeline import Timeline
from addons.ui.running_hub import RunningHub
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding
from tests.addons.support.hub_world import NODE, RULES, HubWorld
from tests.cloud.ports import free_port

SLICES = ResourceType("discovery.k8s.io", "v1", "endpointslices")
SERVICES = ResourceType("", "v1", "services")


def settings(**given: Any) -> Settings:
    return parse_settings({"server": "https://a:6443", "node": NODE, **given})


def running_hub(parts: HubWorld, rules: Mapping[str, str] | None = RULES, **given: Any) -> RunningHub:
    """A hub whose cloud is one server that is up, with these rules in force; None for those of the parts."""
    if rules is not None:
        parts.set_rules(rules)
    in_force = RulesInForce(FILTERS, frozenset(), lambda *_: None)
    in_force.rules, in_force.is_known = parts.rules, True
    cloud = Cloud([ServerHealth(parse_server("https://a:6443"))], "priority")
    return RunningHub(settings(**given), cloud, parts.sources, parts.inputs, in_force)


class AdminClient:
    """A client of a hub's open admin port."""

    def __init__(self, server: AdminServer, hub: RunningHub, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session
        listen = hub.settings.listen
        self.url = f"http://{f'[{listen}]' if ':' in listen else listen}:{hub.settings.admin_port}"

    async def ask(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
        """Code and text; a `body` is posted."""
        method, data = ("GET", None) if body is None else ("POST", io.BytesIO(body))
        async with self.session.request(method, self.url + path, data=data, headers=headers) as answer:
            return answer.status, await answer.text(errors="replace")

    async def json(self, path: str, body: bytes | None = None) -> Any:
        method, headers = ("GET" if body is None else "POST"), {"Accept": "application/json"}
        async with self.session.request(method, self.url + path, data=body, headers=headers) as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            return await answer.json()


@asynccontextmanager
async def served(hub: RunningHub, attachments: Attachments | None = None) -> AsyncIterator[AdminClient]:
    """A client of the admin port, a free one, of a hub."""
    hub = replace(hub, settings=replace(hub.settings, admin_port=free_port()))
    port = AdminPort(hub.settings)
    attachments = attachments or Attachments(lambda: hub.settings, Drills(lambda: None))
    server = admin_server(hub, attachments, Timeline(hub))
    await server.start(port.socket)
    try:
        async with aiohttp.ClientSession() as session:
            yield AdminClient(server, hub, session)
    finally:
        server.close()


async def read(parts: HubWorld, *types: ResourceType) -> None:
    """The hub reads resources in JSON, as when a component has asked for them."""
    for each in types:
        await parts.sources.get(HUB_IDENTITY, ListWatch(each, encoding=Encoding.JSON)).ready(5)


async def inputs_known(parts: HubWorld) -> None:
    """Return once the hub knows Services, which filters ask for."""
    parts.inputs.ask().service("default", "web")
    for each in list(parts.inputs._inputs.values()):
        while not each.is_known:
            await parts.inputs.learned.wait()
