"""From options to settings: what the hub accepts, and what it tells the operator otherwise."""

import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest

from addons.filters.inputs import HubAddress
from addons.settings import parse_settings, version


def values(**given: Any) -> dict[str, Any]:
    return {"server": "https://cloud:6443", **given}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"server": ""}, "where the cloud is"),
        ({"context": "edge"}, "hub_context is one of a kubeconfig"),
        ({"node": ""}, "which node"),
        ({"node": "Edge_7"}, "hub_node, 'Edge_7', is no name of a Node"),
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
def test_the_environments_kubeconfig_counts_where_nothing_names_the_cloud(
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


def test_the_version_of_the_program_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status asks for it every few seconds, and each time all names of the installed packages were read."""
    found = version()
    monkeypatch.setattr(metadata, "version", lambda _: "another")
    assert version() == found


def test_a_node_is_called_as_its_kubelet_calls_it_by_the_hosts_name() -> None:
    program = (
        "import os; named = os.uname_result(['Linux', 'Edge-7', *'rvm']); os.uname = lambda: named; "
        "from addons.settings import Settings; print(Settings().node)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "edge-7\n"
