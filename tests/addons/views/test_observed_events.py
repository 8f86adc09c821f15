"""The events of open watches as people see them: what was sent, what a filter hid and why, and from where it came."""

from __future__ import annotations

from addons.filters.verdict import changed, dropped, kept
from addons.telemetry.observation import Observation, Tally
from addons.views.observed_events import observed_events
from addons.views.tally import _tallies, tallies_of_one
from kube.store.projection import Why
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


def test_each_filter_counts_what_it_did_itself() -> None:
    reasons: dict[Why, int] = {
        (("first", dropped("gone")),): 2,
        (("first", kept("fine")), ("second", changed("moved"))): 3,
        (("first", changed("cut")), ("second", dropped("empty"))): 1,
    }
    assert list(_tallies(["first", "second"], 10, reasons)) == [
        Tally("first", 13, 1, 2, ("gone", "cut")),
        Tally("second", 10, 3, 1, ("moved", "empty")),
    ]


def test_of_one_object_those_count_that_did_something() -> None:
    assert tallies_of_one((("first", kept("fine")), ("second", dropped("empty")))) == (
        Tally("second", 0, 0, 1, ("empty",)),
    )
    assert tallies_of_one(()) == ()
