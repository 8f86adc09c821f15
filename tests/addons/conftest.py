"""A scriptable cloud of its own for each test of an addon that needs one, and the hub's parts on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.addons.cutting import Cut
from tests.addons.hub_parts import HUB_TOKEN, HubParts
from tests.addons.samples import cloud_service, service
from tests.cloud.scriptable import ScriptableCloud
from tests.cloud.scriptable.access import User


@pytest.fixture
async def cloud() -> AsyncIterator[ScriptableCloud]:
    async with ScriptableCloud() as made:
        made.access.tokens[HUB_TOKEN] = User("system:node:n1", ("system:nodes",))
        yield made


@pytest.fixture
async def parts(cloud: ScriptableCloud) -> AsyncIterator[HubParts]:
    async with HubParts(cloud) as made:
        yield made


@pytest.fixture
def connections() -> Cut:
    return Cut()


@pytest.fixture
def web(cloud: ScriptableCloud) -> None:
    """Two Services, one of them of a type that some components must not see."""
    cloud.store.create(service("web"))
    cloud.store.create(cloud_service("lb"))
