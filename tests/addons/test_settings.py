"""The settings of a hub: how options are parsed, and the settings object that other parts hold."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from mitmproxy import exceptions
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from addons.filters.inputs import HubAddress
from addons.options import Options
from addons.settings import OPTIONS, parse_settings


def values(**given: Any) -> dict[str, Any]:
    return {"server": "https://cloud:6443", **given}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"server": ""}, "no cloud"),
        ({"context": "edge"}, "hub_context names a context of a kubeconfig"),
        ({"node": ""}, "this node's name"),
        ({"node": "Edge_7"}, "hub_node 'Edge_7' is not a valid node name"),
        ({"port": 70000}, "not a port"),
        ({"port": 10268}, "same port"),
        ({"mode": "sky"}, "hub_mode must be one of edge, cloud"),
        ({"server_order": "best"}, "hub_server_order"),
        ({"listen": "localhost"}, "not an IP address"),
        ({"pod_address": "10.0.0.1,x"}, "not an IP address"),
        ({"tls_cert": "/a"}, "must be given together"),
        ({"peer_clients": "all"}, "hub_peer_clients must be one of pool, nodes"),
        ({"peer_clients": "nodes"}, "needs hub_mode cloud"),
        ({"peer_clients": "nodes", "mode": "cloud"}, "hub_peer_cert"),
        ({"relay": "http://10.0.0.9"}, "https://host:port"),
        *(({"leaders": text}, "NODE/ADDRESS") for text in ("10.0.0.9", "N1/10.0.0.9", "n1/fe80::1%eth0")),
        ({"leaders": "n1/10.0.0.9", "peer_port": 0}, "hub_leaders needs hub_peer_port"),
        ({"wait": 0}, "more than 0"),
        ({"local_health_interval": 0}, "more than 0"),
        ({"local_health": "localhost:51005"}, "hub_local_health"),
        ({"local_port": 51003}, "needs hub_local_endpoint"),
        ({"local_port": -1}, "not a port"),
        ({"local_endpoint": "169.254.2.1", "tls_port": 0}, "needs hub_local_port"),
        ({"local_endpoint": "10.0.0.1,10.0.0.2"}, "one IP address per family"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_option(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
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
def test_the_environments_kubeconfig_is_used_if_no_option_names_the_cloud(
    given: dict[str, Any], paths: list[str]
) -> None:
    found = parse_settings(values(**given), {"KUBECONFIG": "/a:/b"})
    assert [str(path) for path in found.kubeconfigs] == paths


def test_several_servers_and_addresses_are_parsed() -> None:
    settings = parse_settings(values(server="https://a:1, https://b:2", pod_address="169.254.2.1,fd00::2:1"))
    assert [str(server) for server in settings.servers] == ["https://a:1", "https://b:2"]
    assert settings.pod_addresses == ("169.254.2.1", "fd00::2:1")


def test_the_listen_address_is_the_default_pod_address() -> None:
    assert parse_settings(values(listen="127.0.0.2")).pod_addresses == ("127.0.0.2",)


def test_the_local_endpoint_has_an_address_per_family_and_the_tls_port_by_default() -> None:
    assert parse_settings(values()).local_endpoint is None
    made = parse_settings(values(local_endpoint="169.254.2.1, fd00::2:1"))
    assert made.local_endpoint == HubAddress(("169.254.2.1", "fd00::2:1"), 10268)
    made = parse_settings(values(local_endpoint="169.254.2.1", local_port=51003))
    assert made.local_endpoint == HubAddress(("169.254.2.1",), 51003)


def test_users_are_given_by_name_or_number() -> None:
    assert parse_settings(values(plain_users="root, 1234")).plain_users == {0, 1234}
    assert parse_settings(values()).plain_users == frozenset()
    with pytest.raises(ValueError, match="hub_plain_users: this node has no user 'nobody-there'"):
        parse_settings(values(plain_users="nobody-there"))


def test_hosts_are_compared_in_lower_case() -> None:
    assert parse_settings(values(allowed_hosts="Hub.Example, b")).allowed_hosts == {"hub.example", "b"}


def test_leaders_are_parsed_as_in_the_pools_configmap() -> None:
    found = parse_settings(values(leaders="a/10.0.0.1, b/fd00::1,a/10.0.0.1,")).leaders
    assert found == {("a", "10.0.0.1"), ("b", "fd00::1")}
    assert not parse_settings(values()).leaders


def test_an_unknown_filter_is_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no filter 'mastersevice': is it masterservice\?"):
        parse_settings(values(disabled_filters="endpoints,mastersevice"))
    assert parse_settings(values(disabled_filters="acme-canary")).disabled_filters == {"acme-canary"}
    assert parse_settings(values(disabled_filters="localhealth")).disabled_filters == {"localhealth"}


def test_the_default_node_name_is_kubelets_default_from_the_host_name() -> None:
    program = (
        "import os; named = os.uname_result(['Linux', 'Edge-7', *'rvm']); os.uname = lambda: named; "
        "from addons.settings import Settings; print(Settings().node)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "edge-7\n"


CLOUD = "https://cloud:6443"


@pytest.fixture
def options() -> Options:
    return Options()


@pytest.fixture
def context(options: Options) -> Iterator[taddons.context]:
    with taddons.context(Proxyserver(), options) as made:
        made.options.add_option("onboarding", bool, True, "declared by an addon that a master loads")
        yield made


def test_every_option_is_declared_with_its_help(context: taddons.context) -> None:
    for each in OPTIONS:
        option = context.options._options[f"hub_{each.name}"]
        assert (option.typespec, option.default, option.help) == (each.kind, each.default, each.plain_text)


def test_there_are_no_settings_before_the_cloud_is_known(options: Options, context: taddons.context) -> None:
    with pytest.raises(AttributeError):
        _ = options.settings
    with pytest.raises(exceptions.OptionsError, match="no cloud"):
        context.configure(options, hub_node="n1")


def test_settings_follow_the_options(options: Options, context: taddons.context) -> None:
    context.configure(options, hub_server=CLOUD, hub_node="n1", hub_port=0)
    assert ([str(each) for each in options.settings.servers], options.settings.node) == ([CLOUD], "n1")
    assert options.settings.port == 0
    context.configure(options, hub_wait=3)
    assert (options.settings.wait, options.settings.node) == (3, "n1")


@pytest.mark.parametrize(
    "late", [{"hub_port": 1}, {"hub_disabled_filters": "masterservice"}, {"hub_wait": 3}, {"hub_node": "n2"}]
)
def test_an_option_read_only_at_the_start_cannot_change_later(
    options: Options, context: taddons.context, late: dict[str, str | int]
) -> None:
    """An interface once showed a new port that had no listener."""
    context.configure(options, hub_server=CLOUD, hub_node="n1")
    options.running()
    (name,) = late
    before = options.settings, getattr(context.options, name)
    with pytest.raises(
        exceptions.OptionsError, match=rf"{name} cannot change while the hub runs: restart the hub"
    ):
        context.configure(options, **late)
    assert (options.settings, getattr(context.options, name)) == before
    context.configure(options, hub_pod_address="169.254.2.1", hub_plain_users="0", hub_allow_hold=True)
    assert (options.settings.pod_addresses, options.settings.allow_hold) == (("169.254.2.1",), True)
    context.configure(options, **{name: before[1]})


@pytest.mark.parametrize(
    "bad", [{"hub_server": "cloud"}, {"hub_wait": 5, "hub_idle": 0}, {"hub_keep_days": 0}]
)
def test_an_invalid_value_is_refused_and_the_old_settings_stay(
    options: Options, context: taddons.context, bad: dict[str, str | int]
) -> None:
    context.configure(options, hub_server=CLOUD, hub_node="n1")
    before = options.settings
    with pytest.raises(exceptions.OptionsError):
        context.configure(options, **bad)
    assert options.settings == before
    assert {name: getattr(context.options, name) for name in bad}.items().isdisjoint(bad.items())


def test_options_of_another_addon_change_no_settings(options: Options, context: taddons.context) -> None:
    context.configure(options, hub_server=CLOUD, hub_node="n1")
    before = options.settings
    context.options.update(ssl_insecure=True)
    assert options.settings is before


def test_mitmproxy_is_configured_to_open_no_connection_by_itself(
    options: Options, context: taddons.context
) -> None:
    context.configure(options, hub_server=CLOUD, hub_node="n1")
    found = context.options
    assert (found.connection_strategy, found.keep_host_header, found.onboarding) == ("lazy", True, False)
    assert found.tcp_timeout > 4 * 3600, "kubelet keeps an idle exec for four hours"


def test_an_unknown_option_of_the_hub_is_refused_with_a_suggestion(
    options: Options, context: taddons.context
) -> None:
    context.options.set("hub_prot=10261", defer=True)
    with pytest.raises(exceptions.OptionsError, match="there is no option hub_prot: is it hub_port"):
        context.configure(options, hub_server=CLOUD)


def test_options_of_another_addon_may_be_set_later(options: Options, context: taddons.context) -> None:
    context.options.set("another_addon=1", defer=True)
    context.configure(options, hub_server=CLOUD)
    assert options.settings.port == 10261
