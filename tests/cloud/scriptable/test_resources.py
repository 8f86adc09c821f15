"""The table of resources, and what can be asked of it."""

from __future__ import annotations

import pytest

from tests.cloud.scriptable.resources import RESOURCES, Resource, ResourceTable, Trait


@pytest.mark.parametrize(
    ("name", "group_resource"),
    [
        ("services", "services"),
        ("endpointslices", "endpointslices.discovery.k8s.io"),
        ("events.events.k8s.io", "events.events.k8s.io"),
        ("nodepools.apps.openyurt.io", "nodepools.apps.openyurt.io"),
    ],
)
def test_a_resource_is_found_by_its_plural(name: str, group_resource: str) -> None:
    assert ResourceTable().named(name).group_resource == group_resource


def test_the_first_version_of_a_name_counts() -> None:
    assert ResourceTable().named("endpointslices").version == "v1"
    assert ResourceTable().named("events").group == ""


def test_unknown_names_are_said() -> None:
    table = ResourceTable()
    with pytest.raises(KeyError, match="'things'"):
        table.named("things")
    with pytest.raises(KeyError, match="'Thing' in 'v1'"):
        table.of_kind("v1", "Thing")


def test_a_resource_comes_and_goes() -> None:
    table = ResourceTable()
    table.remove("endpointslices")
    assert table.at("discovery.k8s.io", "v1", "endpointslices") is None
    assert table.at("discovery.k8s.io", "v1beta1", "endpointslices") is None
    assert ("discovery.k8s.io", "v1") not in table.group_versions
    grid = Resource("superedge.io", "v1", "servicegrids", "ServiceGrid", Trait.CUSTOM)
    table.add(grid)
    assert table.of_kind("superedge.io/v1", "ServiceGrid") is grid
    assert table.in_version("superedge.io", "v1") == [grid]


@pytest.mark.parametrize("kind", ["EndpointSlice", "Event"])
def test_two_views_of_the_same_objects_share_a_collection(kind: str) -> None:
    views = [resource for resource in RESOURCES if resource.kind == kind]
    assert len(views) == 2
    assert len({resource.collection for resource in views}) == 1
    assert len({resource.stored_api_version for resource in views}) == 1
