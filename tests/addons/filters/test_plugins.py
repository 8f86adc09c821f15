"""Filters from files and packages: what they must declare, how the hub checks it, and their place in the order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from addons.filters.chain import FILTERS
from addons.filters.plugins import (
    MAX_PLUGINS,
    MAX_REASONS,
    FilterPlugin,
    in_order,
    is_plugin_name,
    need_json,
    plugin_of,
)
from addons.filters.verdict import kept
from kube.wire.encoding import Encoding
from tests.addons.filters.support.samples import World, service
from tests.addons.support.filter_plugins import Hiding

OWN = [each.name for each in FILTERS]


def made(name: str = "acme-hide", **said: Any) -> FilterPlugin:
    return plugin_of(Hiding(name=name, **said), "digest")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"name": "hide"}, "with a hyphen"),
        ({"name": "Acme-hide"}, "small letters"),
        ({"name": "acme-" + "x" * 64}, "needs a name"),
        ({"name": 7}, "needs a name"),
        ({"resources": frozenset()}, "acme-hide.resources is no frozenset"),
        ({"resources": frozenset({"services"})}, "pairs"),
        ({"components": {"kube-proxy"}}, "acme-hide.components is no frozenset"),
        ({"components": frozenset({"Kube-Proxy"})}, "names of components"),
        ({"verbs": frozenset({"delete"})}, "get, list, watch"),
        ({"verbs": frozenset()}, "get, list, watch"),
        ({"reasons": frozenset()}, "reasons"),
        ({"reasons": frozenset({"not a slug"})}, "metric's label"),
        ({"reasons": frozenset(f"r{number}" for number in range(MAX_REASONS + 1))}, f"1 to {MAX_REASONS}"),
        ({"after": "masterservice"}, "acme-hide.after is no tuple"),
        ({"protobuf": 1}, "protobuf"),
    ],
)
def test_what_a_filter_lacks_is_said(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        made(**said)


def test_a_filter_can_decide() -> None:
    hiding = Hiding()
    said = ("name", "resources", "components", "verbs", "reasons")
    lame = type("Lame", (), {each: getattr(hiding, each) for each in said})
    with pytest.raises(ValueError, match="acme-hide has no method apply"):
        plugin_of(lame(), "")


@pytest.mark.parametrize("name", OWN)
def test_no_filter_of_the_hub_has_a_name_of_a_plugin(name: str) -> None:
    assert not is_plugin_name(name)


def test_two_are_the_same_while_their_code_is() -> None:
    assert made() == made(hidden="other"), "the digest speaks for the code"
    assert made() != plugin_of(Hiding(), "another digest")
    assert repr(made()) == repr(made(reasons=frozenset({"shown", "hidden", "more"}))), (
        "a set's order is chance"
    )


@pytest.mark.parametrize("answer", [kept("unheard-of"), "kept", None.__class__])
def test_no_word_but_those_that_it_named(answer: object) -> None:
    with pytest.raises(ValueError, match="no verdict with one of its reasons"):
        made(answer=answer).apply(service().build(Encoding.JSON), World())


def test_what_needs_json_sees_no_protobuf() -> None:
    careful = made(protobuf=False)
    assert need_json([*FILTERS, careful])
    assert not need_json([*FILTERS, made()])
    assert careful.apply(service("api").build(Encoding.JSON), World()) == kept("shown")
    with pytest.raises(ValueError, match="JSON alone"):
        careful.apply(service("api").build(Encoding.PROTOBUF), World())


@pytest.mark.parametrize(
    ("added", "order"),
    [
        ([{}], [*OWN, "acme-hide"]),
        ([{"after": ("masterservice",)}], [*OWN, "acme-hide"]),
        ([{"before": (OWN[0],)}], ["acme-hide", *OWN]),
        ([{"after": (OWN[0],), "before": (OWN[1],)}], [OWN[0], "acme-hide", *OWN[1:]]),
        ([{"name": "b-b", "after": ("a-a",)}, {"name": "a-a"}], [*OWN, "a-a", "b-b"]),
        ([{"name": "b-b", "before": (OWN[0],)}, {"name": "a-a", "before": ("b-b",)}], ["a-a", "b-b", *OWN]),
        ([{"after": ("localhealth",)}], [*OWN, "acme-hide"]),
    ],
)
def test_each_stands_where_it_says(added: list[dict[str, Any]], order: list[str]) -> None:
    assert [each.name for each in in_order(FILTERS, [made(**said) for said in added])] == order


@pytest.mark.parametrize(
    ("added", "problem"),
    [
        ([{}, {}], "two filters are called acme-hide"),
        ([{"after": ("nobody",)}], "'nobody', and there is no such filter"),
        ([{"after": (OWN[1],), "before": (OWN[0],)}], "no order has all of acme-hide"),
        ([{"name": f"a-{number}"} for number in range(MAX_PLUGINS + 1)], f"more than {MAX_PLUGINS}"),
    ],
)
def test_what_cannot_stand_is_refused(added: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        in_order(FILTERS, [made(**said) for said in added])


def test_a_plugin_is_a_filter() -> None:
    found = made()
    assert {found: 1}[replace(found)] == 1, "chains of filters are keys"
    assert cast(Any, found.code).name == found.name
