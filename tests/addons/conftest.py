"""Fixtures for tests of addons: a scriptable cloud, and the hub's parts on it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from mitmproxy import http

from addons import router
from addons.egress import Egress
from addons.offline.cached_responses import CachedResponses
from tests.addons.support import lease_parts, replay_parts
from tests.addons.support.copying import copies_in
from tests.addons.support.cutting import FakeConnections
from tests.addons.support.egress_parts import egress_on
from tests.addons.support.hub_world import HUB_TOKEN, HubWorld
from tests.addons.support.offline_parts import journal_in
from tests.addons.support.routed import Routed
from tests.addons.support.samples import cloud_service, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User


@pytest.fixture
async def cloud() -> AsyncIterator[ScriptableCloud]:
    async with ScriptableCloud() as made:
        made.access.tokens[HUB_TOKEN] = User("system:node:n1", ("system:nodes",))
        yield made


@pytest.fixture
async def parts(cloud: ScriptableCloud) -> AsyncIterator[HubWorld]:
    async with HubWorld(cloud) as made:
        yield made


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """Yield the root logger; restore its handlers and the level of every logger after the test."""
    root = logging.getLogger()
    levels, handlers = {each: each.level for each in _loggers()}, list(root.handlers)
    yield root
    for each in _loggers():
        each.setLevel(levels.get(each, logging.NOTSET))
    root.handlers[:] = handlers


def _loggers() -> list[logging.Logger]:
    root = logging.getLogger()
    return [root, *(each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger))]


@pytest.fixture
def connections() -> FakeConnections:
    return FakeConnections()


@pytest.fixture
def web(cloud: ScriptableCloud) -> None:
    """Serve two Services, one of a type that some components must not see."""
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[lease_parts.World]:
    async with copies_in(tmp_path) as copies:
        made = lease_parts.World(CachedResponses(copies.access))
        yield made
        await made.written()


@pytest.fixture
async def replaying(tmp_path: Path) -> AsyncIterator[replay_parts.World]:
    async with journal_in(tmp_path) as journal:
        yield replay_parts.World(journal)


@pytest.fixture
def egress(connections: FakeConnections) -> Egress:
    """Build an egress that knows two servers, without probes."""
    return egress_on(connections)


@pytest.fixture
async def routed() -> AsyncIterator[Routed]:
    made = Routed()
    yield made
    made.inputs.close()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[http.HTTPFlow]:
    """Return the flows whose responses the router aborted."""
    found: list[http.HTTPFlow] = []
    monkeypatch.setattr(router, "finish", lambda flow, _why: found.append(flow))
    return found
