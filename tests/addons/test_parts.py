"""How the settings choose the parts: filters, and what is switched off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from addons.parts import disabled_by, filter_modules, filters_of
from addons.rules.table import OFF_IN_CLOUD_MODE
from addons.settings import Settings, parse_settings
from tests.addons.support.filter_plugins import text_of, write


def settings(**given: Any) -> Settings:
    return parse_settings({"server": "https://a:6443", **given})


@pytest.mark.parametrize(
    ("given", "disabled"),
    [
        ({}, frozenset()),
        ({"disabled_filters": "endpoints, masterservice"}, {"endpoints", "masterservice"}),
        ({"mode": "cloud"}, OFF_IN_CLOUD_MODE),
        ({"mode": "cloud", "disabled_filters": "endpoints"}, {*OFF_IN_CLOUD_MODE, "endpoints"}),
    ],
)
def test_filters_that_are_off(given: dict[str, Any], disabled: set[str]) -> None:
    assert disabled_by(settings(**given)) == disabled


@pytest.mark.parametrize(("order", "said"), [("any", "any"), ("preferred", "preferred")])
def test_what_several_topology_keys_mean(order: str, said: str) -> None:
    (topology,) = [
        each for each in filters_of(settings(topology_order=order)) if each.name == "servicetopology"
    ]
    assert said in repr(topology)


def test_filters_of_others_stand_among_the_hubs(tmp_path: Path) -> None:
    file = tmp_path / "acme.py"
    write(file, text_of("web"))
    given = settings(filter_module=str(file), disabled_filters="acme-hide")
    assert filter_modules(given).filters[:-1] == filters_of(given)
    with pytest.raises(ValueError, match="hub_disabled_filters: there is no filter 'acme-show'"):
        filter_modules(settings(filter_module=str(file), disabled_filters="acme-show"))
