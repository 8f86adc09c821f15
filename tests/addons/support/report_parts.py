"""A running hub as reports read it: the hub's parts on a scriptable cloud, with rules that the test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from addons.filters.chain import FILTERS
from addons.link.health import Cloud, ServerHealth
from addons.link.servers import parse_server
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.rules.in_force import RulesInForce
from addons.rules.table import parse_rules
from addons.settings import Settings, parse_settings
from addons.ui.admin import Admin
from addons.ui.reports.running_hub import RunningHub
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.wire.encoding import Encoding
from tests.addons.support.hub_parts import NODE, RULES, HubParts
from tests.cloud.ports import free_port

SLICES = ResourceType("discovery.k8s.io", "v1", "endpointslices")
SERVICES = ResourceType("", "v1", "services")


def settings(**given: Any) -> Settings:
    own = {"server": "https://a:6443", "node": NODE, "admin_port": free_port()}
    return parse_settings({**own, **given})


def running_hub(parts: HubParts, rules: Mapping[str, str] = RULES, **given: Any) -> RunningHub:
    """A hub whose cloud is one server that is up, with these rules in force."""
    parts.set_rules(rules)
    in_force = RulesInForce(FILTERS, frozenset(), lambda *_: None)
    in_force.rules, in_force.is_known = parse_rules(rules), True
    cloud = Cloud([ServerHealth(parse_server("https://a:6443"))], "priority")
    return RunningHub(settings(**given), cloud, parts.sources, parts.inputs, in_force)


@asynccontextmanager
async def served(hub: RunningHub) -> AsyncIterator[tuple[Admin, aiohttp.ClientSession, str]]:
    """The open admin port of a hub, a client, and the port's URL."""
    admin = Admin(hub)
    await admin.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield admin, session, f"http://127.0.0.1:{hub.settings.admin_port}"
    finally:
        admin.close()


async def read(parts: HubParts, *types: ResourceType) -> None:
    """The hub reads resources in JSON, as when a component has asked for them."""
    for each in types:
        await parts.sources.get(HUB_IDENTITY, ListWatch(each, encoding=Encoding.JSON)).ready(5)


async def inputs_known(parts: HubParts) -> None:
    """Return once the hub knows Services, which filters ask for."""
    parts.inputs.ask().service("default", "web")
    for each in list(parts.inputs._inputs.values()):
        while not each.is_known:
            await parts.inputs.learned.wait()
