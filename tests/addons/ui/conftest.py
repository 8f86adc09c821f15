"""A hub whose clients have listed two Services, of which the component `chosen` gets one, and its admin port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from addons.ui.running_hub import RunningHub
from tests.addons.support.admin_client import AdminClient, served
from tests.addons.support.hub_world import SERVICES, HubWorld


@pytest.fixture
async def hub(parts: HubWorld, web: None) -> RunningHub:
    await parts.source(SERVICES)
    made = parts.running_hub({"discardcloudservice": "chosen"})
    made.records.traffic.began("seen", "services", is_error=False, is_watch=False)
    return made


@pytest.fixture
async def pages(hub: RunningHub) -> AsyncIterator[AdminClient]:
    async with served(hub) as made:
        yield made
