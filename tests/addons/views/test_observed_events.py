"""The events of open watches as people see them: what was sent, what a filter hid and why, and from where it came."""

from __future__ import annotations

from addons.telemetry.observation import Observation
from addons.views.observed_events import observed_events
from tests.addons.support.hub_parts import HubParts
from tests.addons.support.samples import SERVICES, cloud_service, service
from tests.cloud.scriptable import ScriptableCloud


async def test_what_is_sent_and_what_is_hidden_is_noted_while_a_watch_is_open(
    parts: HubParts, cloud: ScriptableCloud
) -> None:
    seen: list[Observation] = []
    parts.sources.noted = observed_events(seen.append)
    parts.set_rules({"discardcloudservice": "chosen"})
    async with parts.watch(f"{SERVICES}?watch=true&resourceVersion=0", "chosen") as watch:
        cloud.store.create(cloud_service("lb"))
        cloud.store.create(service("web"))
        assert await watch.event() == ("ADDED", "web")
    hidden, added = seen
    assert (hidden.verb, hidden.name, hidden.sent, hidden.verdict) == ("HIDDEN", "lb", 0, "filtered")
    assert [(each.filter, each.hidden, each.reasons) for each in hidden.filters] == [
        ("discardcloudservice", 1, ("load-balancer",))
    ]
    assert (added.verb, added.name, added.verdict, added.source) == ("ADDED", "web", "viewed", "cloud")
    assert (added.sent > 0, added.watchers, added.version) == (True, 1, cloud.store.version)
    cloud.store.create(service("api"))
    assert await parts.names(SERVICES, "chosen") == ["api", "web"]
    assert len(seen) == 2, "nobody watches now"
