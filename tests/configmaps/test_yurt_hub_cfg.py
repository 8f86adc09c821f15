"""The rules ConfigMap that users edit: as shipped it changes nothing, and each commented example works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from addons.filters.chain import FILTERS
from addons.filters.filter import Filter
from addons.rules.table import OFF_IN_CLOUD_MODE, parse_rules

SHIPPED = Path(__file__).parents[2] / "configmaps" / "yurt-hub-cfg.yaml"


def shipped_data() -> dict[str, str]:
    data: dict[str, str] = yaml.safe_load(SHIPPED.read_text())["data"]
    return data


def shipped_examples() -> list[tuple[str, str]]:
    """Return every commented line of the shipped ConfigMap that would be a key in it."""
    found = re.findall(r"^  #   ([a-z_]+: \".*\")$", SHIPPED.read_text(), re.MULTILINE)
    return [item for line in found for item in yaml.safe_load(line).items()]


def test_the_shipped_configmap_equals_the_defaults() -> None:
    shipped = yaml.safe_load(SHIPPED.read_text())
    assert (shipped["kind"], shipped["metadata"]["namespace"]) == ("ConfigMap", "kube-system")
    assert shipped["metadata"]["labels"] == {"openyurt.io/configmap-name": shipped["metadata"]["name"]}
    rules = parse_rules(shipped_data())
    assert rules.problems.named == ()
    assert rules.digest == parse_rules(None).digest


def test_the_shipped_configmap_shows_every_key_with_an_example() -> None:
    others = {"cache_agents", "offline_leases", "pool_resources"}
    assert set(shipped_data()) == others | {filter_.name for filter_ in FILTERS}
    assert {key.removeprefix("filter_") for key, _ in shipped_examples()} == set(shipped_data())


@pytest.mark.parametrize(("key", "value"), shipped_examples())
def test_each_example_in_the_shipped_configmap_is_valid(key: str, value: str) -> None:
    rules = parse_rules({key: value})
    assert rules.problems.named == ()
    assert rules.digest != parse_rules(None).digest, "it changes something"


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda filter_: filter_.name)
def test_the_shipped_configmap_documents_the_defaults_of_each_filter(filter_: Filter) -> None:
    comment = SHIPPED.read_text().partition(f'\n  {filter_.name}: ""\n')[0].rpartition("\n\n")[2]
    default = re.search(r"# Default: (.*)\.$", comment, re.MULTILINE)
    assert default is not None
    components, _, verbs = default.group(1).partition("; ")
    if filter_.components:
        assert set(re.split(", | and ", components)) == filter_.components
        assert set(re.split(", | and ", verbs)) == filter_.verbs
    else:
        assert components == "no component"
    off = "Always off on hubs in cloud mode" in comment.replace("\n  # ", " ")
    assert off is (filter_.name in OFF_IN_CLOUD_MODE)
