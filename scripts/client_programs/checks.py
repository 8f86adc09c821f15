"""Checks of the client programs. Each runs with all clients at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scripts.client_programs.client import Client, settle
from scripts.client_programs.site import PLAIN, STRAIGHT, TLS, Site

SETTLED = 90.0
"""Seconds until each client must know the expected Services: twice the longest retry delay of a client library."""
STARTED = 300.0
"""Seconds until each program must have started: a dozen JVMs on busy cores."""
CHANGES = 200
FEWER = 20
"""Changes made while something is away."""
RELAYED, CACHED, FILTERED = "relayed", "cached", "filtered"
FILTER = {"discardcloudservice": "*"}
ROUTES: Mapping[str, Mapping[str, str]] = {
    RELAYED: {"cache_agents": "-*"},
    CACHED: {"cache_agents": "*"},
    FILTERED: {"cache_agents": "*", **FILTER},
}
"""The rules that put all clients on one route, by the route's name."""

type Clients = Mapping[tuple[str, str], Client]
type Wrong = dict[tuple[str, str], str]
"""The error of a client, by ecosystem and door."""


def settled(site: Site, clients: Clients, seconds: float = SETTLED) -> Wrong:
    wanted = {door: site.wanted(door) for door in {door for _, door in clients}}
    return settle({key: (client, wanted[key[1]]) for key, client in clients.items()}, seconds)


def listed(site: Site, clients: Clients, _route: str) -> Wrong:
    return settled(site, clients, STARTED)


def watched(site: Site, clients: Clients, _route: str) -> Wrong:
    """Check that each change arrives as one event."""
    before = {key: client.events for key, client in clients.items()}
    site.change(CHANGES)
    wrong = settled(site, clients)
    for key, client in clients.items():
        seen = client.events - before[key]
        if seen != CHANGES and key not in wrong:
            wrong[key] = f"{seen} events of {CHANGES} changes"
    return wrong


def edited(site: Site, clients: Clients, route: str) -> Wrong:
    """Check that clients follow when a filter comes into force, and when it is removed again."""
    rules = dict(ROUTES[route])
    other = (
        {key: value for key, value in rules.items() if key not in FILTER}
        if route == FILTERED
        else rules | FILTER
    )
    site.rules(**other)
    wrong = settled(site, clients)
    site.rules(**rules)
    return {**settled(site, clients), **wrong}


def away(site: Site, clients: Clients, route: str) -> Wrong:
    site.refuse()
    wrong = _begin_now(site, "outage") if route != RELAYED else {}
    site.change(FEWER)
    site.carry()
    return {**settled(site, clients), **wrong}


def killed(site: Site, clients: Clients, _route: str) -> Wrong:
    site.hub.kill()
    site.change(FEWER)
    site.hub.start()
    return settled(site, clients)


def killed_alone(site: Site, clients: Clients, route: str) -> Wrong:
    """Check that clients go on when the hub restarts without a cloud, from its disk."""
    site.wait_until_stored()
    site.refuse()
    site.hub.kill()
    site.hub.start(ready=False)
    wrong = _begin_now(site, "alone") if route != RELAYED else {}
    site.change(FEWER)
    site.carry()
    return {**settled(site, clients), **wrong}


def compacted(site: Site, clients: Clients, _route: str) -> Wrong:
    """Check that clients recover when no server has their resourceVersions any more."""
    site.refuse()
    site.change(FEWER)
    site.cloud.compact()
    site.carry()
    return settled(site, clients)


def _begin_now(site: Site, what: str) -> Wrong:
    """Check clients that start at the hub while the cloud is away."""
    with site.clients((PLAIN, TLS), what) as clients:
        return {
            key: f"begun without a cloud: {wrong}" for key, wrong in settled(site, clients, STARTED).items()
        }


CHECKS: Mapping[str, Callable[[Site, Clients, str], Wrong]] = {
    "list": listed,
    f"watch of {CHANGES}": watched,
    "rules edit": edited,
    "outage": away,
    "kill -9": killed,
    "kill -9, no cloud": killed_alone,
    "compaction": compacted,
}


def differs(wrong: Wrong, ecosystem: str, door: str) -> bool:
    """Whether a client is wrong at one of the hub's ports but right at kube-apiserver."""
    return (ecosystem, door) in wrong and (ecosystem, STRAIGHT) not in wrong
