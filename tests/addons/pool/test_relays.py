"""What a relay shares, and with which hubs."""

from __future__ import annotations

from addons.pool.pool_config import Role, role_of
from addons.pool.relays import EveryNode, hub_of, relay_config
from addons.upstream.servers import parse_relays


def test_a_relay_leads_and_shares_all_that_a_pool_may_share() -> None:
    config = relay_config("relay-1")
    assert role_of(config, "relay-1", can_lead=True, can_follow=True) is Role.LEADER
    shared = (("", "services"), ("", "endpoints"), ("discovery.k8s.io", "endpointslices"))
    assert all(config.shares(group, resource) for group, resource in shared)
    assert not config.shares("", "pods")


def test_every_node_is_a_member() -> None:
    members = EveryNode()
    assert "any" in members
    assert members
    assert list(members) == []


def test_no_relay_has_the_name_of_a_node() -> None:
    (relay,) = parse_relays("https://10.0.0.9:10269")
    assert hub_of(relay).node == "relay 10.0.0.9:10269"
