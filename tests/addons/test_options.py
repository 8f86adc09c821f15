"""The hub's options inside mitmproxy: read when they change, refused whole when one is bad."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mitmproxy import exceptions
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.test import taddons

from addons.options import Options
from addons.settings import OPTIONS

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
    with pytest.raises(exceptions.OptionsError, match="where the cloud is"):
        context.configure(options, hub_node="n1")


def test_settings_follow_the_options(options: Options, context: taddons.context) -> None:
    context.configure(options, hub_server=CLOUD, hub_node="n1", hub_port=0)
    assert ([str(each) for each in options.settings.servers], options.settings.node) == ([CLOUD], "n1")
    assert options.settings.port == 0
    context.configure(options, hub_wait=3)
    assert (options.settings.wait, options.settings.node) == (3, "n1")


@pytest.mark.parametrize(
    "bad", [{"hub_server": "cloud"}, {"hub_wait": 5, "hub_idle": 0}, {"hub_keep_days": 0}]
)
def test_a_bad_value_is_refused_and_the_old_settings_stay(
    options: Options, context: taddons.context, bad: dict[str, str | int]
) -> None:
    context.configure(options, hub_server=CLOUD, hub_node="n1")
    before = options.settings
    with pytest.raises(exceptions.OptionsError):
        context.configure(options, **bad)
    assert options.settings == before
    assert {name: getattr(context.options, name) for name in bad}.items().isdisjoint(bad.items())


def test_options_of_others_are_none_of_its_business(options: Options, context: taddons.context) -> None:
    context.configure(options, hub_server=CLOUD, hub_node="n1")
    before = options.settings
    context.options.update(ssl_insecure=True)
    assert options.settings is before


def test_mitmproxy_is_set_up_so_that_nothing_leaves_by_itself(
    options: Options, context: taddons.context
) -> None:
    context.configure(options, hub_server=CLOUD, hub_node="n1")
    found = context.options
    assert not found.server, "mitmproxy opens no listener before the hub can answer"
    assert (found.connection_strategy, found.keep_host_header, found.onboarding) == ("lazy", True, False)
    assert found.tcp_timeout > 4 * 3600, "kubelet keeps an idle exec for four hours"


def test_an_unknown_option_of_the_hub_is_refused_with_the_nearest(
    options: Options, context: taddons.context
) -> None:
    context.options.set("hub_prot=10261", defer=True)
    with pytest.raises(exceptions.OptionsError, match="there is no option hub_prot: is it hub_port"):
        context.configure(options, hub_server=CLOUD)


def test_options_of_others_may_come_later(options: Options, context: taddons.context) -> None:
    context.options.set("another_addon=1", defer=True)
    context.configure(options, hub_server=CLOUD)
    assert options.settings.port == 10261
