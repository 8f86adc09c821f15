"""A hub with a scriptable cloud: sources, filters, rules, responses from views, and the inputs of reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self

import aiohttp
from mitmproxy import http

from addons.filters.chain import FILTERS
from addons.filters.inputs import HubAddress
from addons.inputs.filter_chain import chain_of
from addons.inputs.filter_inputs import FilterInputs
from addons.link.health import Cloud, ServerHealth
from addons.link.servers import parse_server
from addons.requests.answers import Answer, Answerer, RelayToCloud
from addons.requests.caller import Caller, Listener
from addons.requests.cloud_identity import HUB_IDENTITY
from addons.requests.request_context import RequestContext
from addons.requests.route_decision import decide
from addons.rules.filtering import Filtering
from addons.rules.in_force import RulesInForce
from addons.rules.issued_versions import IssuedVersions, RulesEdit
from addons.rules.table import Rules, parse_rules
from addons.settings import Settings, parse_settings
from addons.ui.running_hub import RunningHub
from addons.views.reviews import Reviews
from addons.views.serving import Serving
from addons.views.source import Source
from addons.views.sources import CloudReads, Sources
from kube.errors import unavailable
from kube.http.client import Client, Unreachable
from kube.http.http1 import Http1Session
from kube.json_type import Json
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType, parse_request
from kube.store.projection import InputKey
from kube.wire.codec import FrameReader, WatchFrame, codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.exchange import Exchange
from tests.addons.support.observed import ended
from tests.addons.support.samples import HUB, config_map
from tests.cloud.scriptable import ScriptableCloud

NODE = "n1"
WAIT = 10.0
"""Seconds that a request waits for a first copy."""
HUB_TOKEN = "hub"
"""The bearer token that represents the hub's own identity at the cloud."""
RULES = {"cache_agents": "cached", "filter_servicetopology": "reader/endpointslices#list;watch"}

SERVICES, SLICES = (
    ResourceType("", "v1", "services"),
    ResourceType("discovery.k8s.io", "v1", "endpointslices"),
)
SERVICES_LIST_WATCH = ListWatch(SERVICES, encoding=Encoding.JSON)


def settings(**given: Any) -> Settings:
    return parse_settings({"server": "https://a:6443", "node": NODE, **given})


class HubWorld:
    """Answer requests like a hub without its proxy: relayed requests go straight to the cloud."""

    def __init__(self, cloud: ScriptableCloud, idle: float = 300.0, edit: RulesEdit | None = None) -> None:
        """`edit` is the last edit of the rules recorded by an earlier hub; without it there was no earlier hub."""
        self.cloud = cloud
        self._cloud_session = aiohttp.ClientSession(auto_decompress=False)
        self.is_up = True
        """The result of a probe."""
        self.clients: list[str] = []
        """The Authorization header of every created client; "" = the hub's own."""
        self.rules: Rules = parse_rules(RULES)
        self.edit = edit
        self.inputs = FilterInputs(
            NODE, "", HubAddress(("169.254.2.1",), 10268), self._open, self._inputs_changed
        )
        self.sources = Sources(
            CloudReads(lambda identity: self._client_of(identity.authorization)),
            Filtering(
                partial(chain_of, self.inputs), lambda: self.rules, IssuedVersions(self.edit, self._keep_edit)
            ),
            idle,
        )
        if edit is None:
            self.sources.rules_changed()
        self.serving = Serving(
            self.sources, Reviews(self._client_of, 3600), lambda: self.rules, WAIT, self._confirm_up
        )

    async def _confirm_up(self) -> bool:
        return self.is_up

    async def __aenter__(self) -> Self:
        self._before = asyncio.all_tasks()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.inputs.close()
        self.sources.close()
        await self._cloud_session.close()
        await ended(self._before)

    def context(
        self,
        target: str,
        component: str = "cached",
        *,
        caller: Caller = HUB,
        accept: str | None = "application/json",
    ) -> RequestContext:
        """Return a request as the router routes it; StatusError if it is refused."""
        info = parse_request("GET", target)
        made = RequestContext(info, component, Listener.PLAIN, accept)
        made.caller = caller
        made.route = decide(info, component, caller, made.listener, accept, self.rules)
        return made

    @asynccontextmanager
    async def open(
        self, context: RequestContext, target: str = "/", answerer: Answerer | None = None
    ) -> AsyncIterator[Exchange]:
        """Return the response once its head has arrived. `answerer` serves views by default."""
        exchange = Exchange()
        request = http.Request.make("GET", f"http://hub{target}")
        exchange.start(self._answered(answerer or self.serving, context, request, exchange))
        try:
            await exchange.status
            yield exchange
        finally:
            await exchange.closed()

    async def _answered(
        self, answerer: Answerer, context: RequestContext, request: http.Request, exchange: Exchange
    ) -> Answer | None:
        """Answer a request like the proxy: relay it to the cloud where no part answers."""
        wanted = context.client_request(request)
        try:
            return await answerer.answer(wanted, exchange)
        except RelayToCloud:
            client, accept = self._client_of(wanted.caller.authorization), context.accept or "*/*"
        try:
            async with client.watch(wanted.target, query={}, accept=accept, timeout=WAIT) as answer:
                await exchange.begin({"Content-Type": answer.content_type})
                async for chunk in answer.chunks:
                    await exchange.write(chunk)
        except Unreachable as error:
            raise unavailable("the cloud cannot be reached") from error
        return None

    async def ask(self, target: str, component: str = "cached", **how: Any) -> tuple[int, Json]:
        """Return the code and the JSON document of a response."""
        async with self.open(self.context(target, component, **how), target) as response:
            return await response.status, json.loads(await response.read_body())

    async def names(self, target: str, component: str = "cached", **how: Any) -> list[str]:
        code, found = await self.ask(target, component, **how)
        assert code == 200, found
        return [item["metadata"]["name"] for item in found["items"]]

    @asynccontextmanager
    async def watch(self, target: str, component: str = "cached", **how: Any) -> AsyncIterator[Watching]:
        async with self.open(self.context(target, component, **how), target) as response:
            assert await response.status == 200, await response.read_body()
            yield Watching(response)

    async def source(self, of: ResourceType | ListWatch = SERVICES) -> Source:
        """Return a source of the hub that has its first copy."""
        list_watch = of if isinstance(of, ListWatch) else ListWatch(of, encoding=Encoding.JSON)
        source = self.sources.get(HUB_IDENTITY, list_watch)
        await source.ready(5)
        return source

    def _open(self, list_watch: ListWatch) -> Source:
        return self.sources.get_own(list_watch)

    def _inputs_changed(self, keys: Collection[InputKey]) -> None:
        self.sources.inputs_changed(keys)

    async def inputs_known(self) -> None:
        """Return once the hub has the Services, an input of filters."""
        self.inputs.ask().service("default", "web")
        for each in list(self.inputs._inputs.values()):
            while not each.is_known:
                await self.inputs.learned.wait()

    def running_hub(self, rules: Mapping[str, str] | None = RULES, **given: Any) -> RunningHub:
        """Build the hub for reports: one healthy server, and these rules; None leaves the rules in force."""
        if rules is not None:
            self.set_rules(rules)
        in_force = RulesInForce(FILTERS, frozenset(), lambda *_: None)
        in_force.rules, in_force.is_known = self.rules, True
        cloud = Cloud([ServerHealth(parse_server("https://a:6443"))], "priority")
        return RunningHub(settings(**given), cloud, self.sources, self.inputs, in_force)

    def set_rules(self, data: Mapping[str, str]) -> None:
        """Edit the rules: like for a ConfigMap, each edit has its own version."""
        self.rules = parse_rules(data)
        self.cloud.store.put(config_map(data, name="edited"))
        self.sources.rules_changed()

    def _keep_edit(self, edit: RulesEdit) -> None:
        self.edit = edit

    def _client_of(self, authorization: str) -> Client:
        self.clients.append(authorization)
        headers = {"User-Agent": "edgehub", "Authorization": authorization or f"Bearer {HUB_TOKEN}"}
        return Client(Http1Session(self._cloud_session), self.cloud.url, headers)


class Watching:
    def __init__(self, response: Exchange) -> None:
        self.response = response
        encoding = Encoding(response.content_type)
        self._reader: FrameReader = codec_for(encoding).frames()
        self._ready: list[WatchFrame] = []

    async def next(self, seconds: float = 10.0) -> WatchFrame:
        """Return the next event; EOFError at the end of the stream, TimeoutError when no event arrives."""
        async with asyncio.timeout(seconds):
            while not self._ready:
                chunk = await self.response.next_piece()
                if not chunk:
                    self._reader.close()
                    raise EOFError
                self._ready += self._reader.feed(chunk)
        return self._ready.pop(0)

    async def until_end(self) -> list[WatchFrame]:
        found = []
        try:
            while True:
                found.append(await self.next())
        except EOFError:
            return found

    async def event(self) -> tuple[str, str]:
        """Return the type, and the name of the object, of the next event."""
        frame = await self.next()
        return frame.type, name_of(frame)


def name_of(frame: WatchFrame) -> str:
    return str(json.loads(frame.raw)["metadata"].get("name", "")) if frame.status is None else ""
