"""The reports of a hub that has no copies and no counts yet."""

from __future__ import annotations

from tests.addons.support.hub_parts import HubParts
from tests.addons.support.report_parts import running_hub


async def test_a_hub_in_the_cloud_has_all_that_reports_read(parts: HubParts) -> None:
    hub = running_hub(parts, mode="cloud")
    assert hub.offline is None
    assert hub.closed() == []
    assert hub.traffic.components() == {}
    assert list(hub.log.lines) == []
