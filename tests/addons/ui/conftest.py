"""A hub that has read two Services, of which the component `chosen` sees one, and its admin port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from addons.ui.running_hub import RunningHub
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.report_parts import SERVICES, AdminClient, read, running_hub, served


@pytest.fixture
async def hub(parts: HubParts, web: None) -> RunningHub:
    await read(parts, SERVICES)
    made = running_hub(parts, {"discardcloudservice": "chosen"})
    made.traffic.began("seen", "services", is_error=False, is_watch=False)
    return made


@pytest.fixture
async def pages(hub: RunningHub) -> AsyncIterator[AdminClient]:
    async with served(hub) as made:
        yield made
