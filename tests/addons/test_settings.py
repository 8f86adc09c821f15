"""From options to settings: what the hub accepts, and what it tells the operator otherwise."""

from typing import Any

import pytest

from addons.filters.inputs import HubAddress
from addons.proxy.listener_mode import HubMode
from addons.requests.caller import Listener
from addons.settings import listener_modes, parse_settings, peer_spec


def values(**given: Any) -> dict[str, Any]:
    return {"server": "https://cloud:6443", **given}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"server": ""}, "where the cloud is"),
        ({"context": "edge"}, "hub_context is one of a kubeconfig"),
        ({"node": ""}, "which node"),
        ({"port": 70000}, "not a port"),
        ({"port": 10268}, "same port"),
        ({"mode": "sky"}, "hub_mode is one of edge, cloud"),
        ({"server_order": "best"}, "hub_server_order"),
        ({"listen": "localhost"}, "not an IP address"),
        ({"pod_address": "10.0.0.1,x"}, "not an IP address"),
        ({"tls_cert": "/a"}, "belong together"),
        ({"peer_clients": "all"}, "hub_peer_clients is one of pool, nodes"),
        ({"peer_clients": "nodes"}, "needs hub_mode cloud"),
        ({"peer_clients": "nodes", "mode": "cloud"}, "hub_peer_cert"),
        ({"relay": "http://10.0.0.9"}, "https://host:port"),
        ({"leaders": "10.0.0.9"}, "NODE/ADDRESS"),
        ({"leaders": "n1/10.0.0.9", "peer_port": 0}, "hub_leaders needs hub_peer_port"),
        ({"wait": 0}, "above 0"),
        ({"local_health_interval": 0}, "above 0"),
        ({"local_health": "localhost:51005"}, "hub_local_health"),
        ({"local_port": 51003}, "needs hub_local_endpoint"),
        ({"local_port": -1}, "not a port"),
        ({"local_endpoint": "169.254.2.1", "tls_port": 0}, "needs hub_local_port"),
        ({"local_endpoint": "10.0.0.1,10.0.0.2"}, "one IP address per family"),
    ],
)
def test_what_an_operator_is_told(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_settings(values(**given))


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({"server": ""}, ["/a", "/b"]),
        ({"server": "", "kubeconfig": "/c"}, ["/c"]),
        ({"server": "", "bootstrap_kubeconfig": "/c"}, []),
        ({}, []),
    ],
)
def test_the_environments_kubeconfig_counts_where_nothing_else_says_where_the_cloud_is(
    given: dict[str, Any], paths: list[str]
) -> None:
    found = parse_settings(values(**given), {"KUBECONFIG": "/a:/b"})
    assert [str(path) for path in found.kubeconfigs] == paths


def test_several_servers_and_addresses() -> None:
    settings = parse_settings(values(server="https://a:1, https://b:2", pod_address="169.254.2.1,fd00::2:1"))
    assert [str(server) for server in settings.servers] == ["https://a:1", "https://b:2"]
    assert settings.pod_addresses == ("169.254.2.1", "fd00::2:1")


def test_pods_are_pointed_at_the_listeners_unless_said_otherwise() -> None:
    assert parse_settings(values(listen="127.0.0.2")).pod_addresses == ("127.0.0.2",)


def test_the_listeners_are_modes_of_the_hub() -> None:
    modes = [HubMode.parse(spec) for spec in listener_modes(parse_settings(values(listen="::1")))]
    assert [each.listener for each in modes] == [Listener.PLAIN, Listener.TLS]
    assert all(each.transport_protocol == "tcp" for each in modes)
    plain = modes[0]
    assert (plain.custom_listen_host, plain.custom_listen_port) == ("::1", 10261)


@pytest.mark.parametrize(("address", "host"), [("", None), ("10.0.0.5", "10.0.0.5"), ("fd00::5", "fd00::5")])
def test_the_peer_port_is_at_its_address(address: str, host: str | None) -> None:
    peers = HubMode.parse(peer_spec(parse_settings(values(peer_address=address, peer_port=10269))))
    assert (peers.custom_listen_host, peers.custom_listen_port) == (host, 10269)


@pytest.mark.parametrize(
    ("given", "addresses", "hosts"),
    [
        ({"pod_address": "auto"}, ("169.254.2.1",), ["127.0.0.1", "169.254.2.1"]),
        (
            {"pod_address": "auto,10.0.0.9,fd00::9"},
            ("10.0.0.9", "fd00::9"),
            ["127.0.0.1", "10.0.0.9", "fd00::9"],
        ),
        ({"pod_address": "auto", "listen": "::"}, ("169.254.2.1",), ["::"]),
        ({"pod_address": "10.0.0.9"}, ("10.0.0.9",), ["127.0.0.1"]),
    ],
)
def test_a_hub_that_makes_the_address_for_pods_listens_there(
    given: dict[str, str], addresses: tuple[str, ...], hosts: list[str]
) -> None:
    settings = parse_settings(values(**given))
    assert settings.pod_addresses == addresses
    modes = [HubMode.parse(spec) for spec in listener_modes(settings)]
    tls = [each for each in modes if each.listener is Listener.TLS]
    assert [each.custom_listen_host for each in tls] == hosts


def test_port_zero_switches_a_listener_off() -> None:
    modes = listener_modes(parse_settings(values(port=0, tls_port=0)))
    assert modes == []


def test_the_local_endpoint_has_an_address_per_family_and_the_tls_port_by_default() -> None:
    assert parse_settings(values()).local_endpoint is None
    made = parse_settings(values(local_endpoint="169.254.2.1, fd00::2:1"))
    assert made.local_endpoint == HubAddress(("169.254.2.1", "fd00::2:1"), 10268)
    made = parse_settings(values(local_endpoint="169.254.2.1", local_port=51003))
    assert made.local_endpoint == HubAddress(("169.254.2.1",), 51003)


def test_users_are_named_or_numbered() -> None:
    assert parse_settings(values(plain_users="root, 1234")).plain_users == {0, 1234}
    assert parse_settings(values()).plain_users == frozenset()
    with pytest.raises(ValueError, match="hub_plain_users: this node has no user 'nobody-there'"):
        parse_settings(values(plain_users="nobody-there"))


def test_hosts_are_compared_in_lower_case() -> None:
    assert parse_settings(values(allowed_hosts="Hub.Example, b")).allowed_hosts == {"hub.example", "b"}


def test_a_filter_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no filter 'mastersevice': is it masterservice\?"):
        parse_settings(values(disabled_filters="endpoints,mastersevice"))
    assert parse_settings(values(disabled_filters="acme-canary")).disabled_filters == {"acme-canary"}
    assert parse_settings(values(disabled_filters="localhealth")).disabled_filters == {"localhealth"}
