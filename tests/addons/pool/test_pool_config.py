"""The ConfigMap of a pool as a value, and the role that it gives a node."""

from __future__ import annotations

import pytest

from addons.link.servers import parse_leaders, parse_relays
from addons.pool.pool_config import (
    MAX_LEADERS,
    NOTHING_SHARED,
    LeaderHub,
    PoolConfig,
    Role,
    first_config,
    hub_of,
    parse_pool_config,
    relay_config,
    role_of,
)
from addons.telemetry import metrics
from kube.peers import MAX_HUBS
from kube.requests.request_info import ResourceType
from tests.addons.support.observed import value_of

ON = {"interconnectivity": "true", "enable-leader-election": "true"}
ENDPOINTS = ResourceType("", "v1", "endpoints")
SERVICES, SLICES = (
    ResourceType("", "v1", "services"),
    ResourceType("discovery.k8s.io", "v1", "endpointslices"),
)


def test_the_keys_are_openyurts() -> None:
    config = parse_pool_config(
        {
            **ON,
            "leaders": "b/10.0.0.2,a/10.0.0.1",
            "pool-scoped-metadata": "/v1/services,discovery.k8s.io/v1/endpointslices",
        }
    )
    assert config.leaders == (LeaderHub("a", "10.0.0.1"), LeaderHub("b", "10.0.0.2"))
    assert config.scope == (SERVICES, SLICES)
    assert config.shares(SERVICES)
    assert not config.shares(ENDPOINTS)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, NOTHING_SHARED),
        ({}, NOTHING_SHARED),
        ({**ON, "interconnectivity": "false"}, NOTHING_SHARED),
        ({**ON, "enable-leader-election": ""}, NOTHING_SHARED),
        ({**ON, "leaders": "a,/10.0.0.1,b/nowhere,c/10.0.0.3/x, ,"}, PoolConfig(is_shared=True)),
        ({**ON, "leaders": ",,/"}, PoolConfig(is_shared=True)),
        (
            {**ON, "leaders": "A b/10.0.0.1,-/10.0.0.1,a\n/10.0.0.1,relay x/10.0.0.1,a..b/10.0.0.1"},
            PoolConfig(is_shared=True),
        ),
        ({**ON, "leaders": "a/fe80::1%eth0,b/fe80::1%x\ny"}, PoolConfig(is_shared=True)),
        (
            {**ON, "leaders": " a/fd00::0:1 , b/10.0.0.1"},
            PoolConfig((LeaderHub("a", "fd00::1"), LeaderHub("b", "10.0.0.1")), is_shared=True),
        ),
        (
            {**ON, "pool-scoped-metadata": "/v1?x=/services,/../services,//services"},
            PoolConfig(is_shared=True),
        ),
        ({**ON, "deputies": "false"}, PoolConfig(is_shared=True, has_deputies=False)),
        ({**ON, "deputies": ""}, PoolConfig(is_shared=True)),
        (
            {**ON, "hubs": "b/10.0.0.1,x,a/fd00::0:1"},
            PoolConfig(hubs=(LeaderHub("a", "fd00::1"), LeaderHub("b", "10.0.0.1")), is_shared=True),
        ),
        # A pool never shares Secrets, whatever the ConfigMap says.
        ({**ON, "pool-scoped-metadata": "/v1/secrets,v1/services,a/b/c/d"}, PoolConfig(is_shared=True)),
    ],
)
def test_what_is_no_entry_is_left_out(data: dict[str, str] | None, expected: PoolConfig) -> None:
    assert parse_pool_config(data) == expected


@pytest.mark.parametrize(
    ("key", "bound", "most"), [("leaders", "leaders", MAX_LEADERS), ("hubs", "hubs of a pool", MAX_HUBS)]
)
def test_a_configmap_has_no_more_hubs_than_a_hub_can_ask(key: str, bound: str, most: int) -> None:
    named = ",".join(f"n{number}/10.0.{number // 256}.{number % 256}" for number in range(10_000))
    before = value_of(metrics.BOUNDS_REACHED.labels(bound))
    assert len(getattr(parse_pool_config({**ON, key: named}), key)) == most
    assert value_of(metrics.BOUNDS_REACHED.labels(bound)) == before + 1


def test_without_a_configmap_the_operators_leaders_share_the_default() -> None:
    config = first_config(parse_leaders("b/10.0.0.2,a/10.0.0.1", 10269))
    assert config == PoolConfig((A, B), (SERVICES, SLICES), is_shared=True)
    assert first_config([]) == NOTHING_SHARED


A, B = LeaderHub("a", "10.0.0.1"), LeaderHub("b", "10.0.0.2")


@pytest.mark.parametrize(
    ("leaders", "is_shared", "can_lead", "can_follow", "role"),
    [
        ((), True, True, True, Role.NONE),
        ((A, B), False, True, True, Role.NONE),
        ((A, B), True, True, True, Role.LEADER),
        ((A, B), True, True, False, Role.LEADER),
        ((A, B), True, False, True, Role.FOLLOWER),
        ((A,), True, False, True, Role.NONE),
        ((B,), True, True, True, Role.FOLLOWER),
        ((B,), True, False, True, Role.FOLLOWER),
        ((B,), True, True, False, Role.NONE),
    ],
)
def test_role(
    leaders: tuple[LeaderHub, ...], is_shared: bool, can_lead: bool, can_follow: bool, role: Role
) -> None:
    config = PoolConfig(leaders, (SERVICES,), is_shared=is_shared)
    assert role_of(config, "a", can_lead=can_lead, can_follow=can_follow) is role


def test_a_relay_leads_and_shares_all_that_a_pool_may_share() -> None:
    config = relay_config("relay-1")
    assert role_of(config, "relay-1", can_lead=True, can_follow=True) is Role.LEADER
    assert all(map(config.shares, (SERVICES, ENDPOINTS, SLICES)))
    assert not config.shares(ResourceType("", "v1", "pods"))
    assert not config.has_deputies


def test_no_relay_has_the_name_of_a_node() -> None:
    (relay,) = parse_relays("https://10.0.0.9:10269")
    assert hub_of(relay).node == "relay 10.0.0.9:10269"
