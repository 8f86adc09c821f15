"""The differences of two pod specs field by field, and the effect of patches on a pod spec."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controllers.bindings.rendering.template_fields import (
    MAX_DEPTH,
    FieldChange,
    complete,
    covers,
    differences,
    format_path,
    parse_path,
    parse_quantity,
    patch_pod_spec,
    restore,
    same_quantity,
)
from kube.json_type import Json
from tests.controllers.support.workloads import patch

APP = {"name": "app", "image": "app:1", "env": [{"name": "A", "value": "a"}]}
SIDE = {"name": "side", "image": "side:1"}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": FieldChange(1, 2)}),
        ({}, {"a": {"b": 1}}, {"a": FieldChange(None, {"b": 1})}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a/c": FieldChange(2, 3)}),
        # The API server drops fields that become empty; empty ones do not exist before either.
        ({"a": {"b": 1}}, {"a": {}}, {"a": FieldChange({"b": 1}, {})}),
        ({"a": [1]}, {"a": []}, {"a": FieldChange([1], [])}),
        ({"a/b": {"c~d": 1}}, {"a/b": {"c~d": 2}}, {"a~1b/c~0d": FieldChange(1, 2)}),
        # List elements with a merge key.
        (
            {"containers": [APP]},
            {"containers": [SIDE, APP]},
            {"containers/name=side": FieldChange(None, SIDE)},
        ),
        (
            {"containers": [APP, SIDE]},
            {"containers": [APP]},
            {"containers/name=side": FieldChange(SIDE, None, 1)},
        ),
        (
            {"containers": [APP]},
            {"containers": [{**APP, "env": [{"name": "A", "value": "b"}]}]},
            {"containers/name=app/env/name=A/value": FieldChange("a", "b")},
        ),
        # List elements without a merge key.
        (
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
            {'tolerations/{"key":"b"}': FieldChange(None, {"key": "b"}, 1)},
        ),
        (
            {"args": ["a"]},
            {"args": ["b"]},
            {'args/"a"': FieldChange("a", None), 'args/"b"': FieldChange(None, "b")},
        ),
        # A repeated value, and another order: the complete list differs.
        ({"args": ["a", "a"]}, {"args": ["a"]}, {"args": FieldChange(["a", "a"], ["a"])}),
        (
            {"containers": [APP, SIDE]},
            {"containers": [SIDE, APP]},
            {"containers": FieldChange([APP, SIDE], [SIDE, APP])},
        ),
        # Two ports with one number are identified by their values.
        (
            {"ports": [{"containerPort": 1, "protocol": "TCP"}]},
            {"ports": [{"containerPort": 1, "protocol": "TCP"}, {"containerPort": 1, "protocol": "UDP"}]},
            {
                'ports/{"containerPort":1,"protocol":"UDP"}': FieldChange(
                    None, {"containerPort": 1, "protocol": "UDP"}, 1
                )
            },
        ),
    ],
)
def test_differences_of_two_pod_specs(before: Json, after: Json, found: dict[str, FieldChange]) -> None:
    assert {format_path(path): each for path, each in differences(before, after).items()} == found


VALUES = st.recursive(
    st.integers(1, 3) | st.sampled_from(["x", "y", "1", "a=b"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["name", "key", "image", "a/b"]), inner, max_size=3)
    ),
    max_leaves=8,
)
SPECS = st.dictionaries(st.sampled_from(["containers", "volumes", "args", "other"]), VALUES, max_size=3)


@example({"volumes": [{}, {"name": []}]}, {"volumes": [1]})
@example(
    {"tolerations": [{"key": "a"}, {"key": "a", "effect": "x"}]},
    {"tolerations": [{"key": "a", "effect": "x"}]},
)
@given(SPECS, SPECS)
def test_every_difference_can_be_reverted(before: Json, after: Json) -> None:
    def without_empty(spec: Json) -> Json:
        """Remove lists that became empty, because the API server does not store them."""
        return {name: value for name, value in spec.items() if value not in ([], {})}

    changes = differences(before, after)
    assert {parse_path(format_path(path)) for path in changes} == set(changes)
    spec = copy.deepcopy(after)
    restore(spec, changes)
    assert without_empty(spec) == without_empty(before)


def test_a_field_changed_by_another_writer_is_not_restored() -> None:
    before: Json = {"containers": [APP]}
    after: Json = {"containers": [{**APP, "image": "patched"}, SIDE], "hostNetwork": True}
    changes = differences(before, after)
    live = copy.deepcopy(after)
    live["containers"][0]["image"] = "writer's"
    live["containers"].append({"name": "third"})
    live["containers"][1]["imagePullPolicy"] = "Always"  # a default of the API server
    held = restore(live, changes)
    assert live == {"containers": [{**APP, "image": "writer's"}, {"name": "third"}]}
    assert {format_path(path) for path in held} == {"containers/name=side", "hostNetwork"}
    assert held[parse_path("containers/name=side")] == {**SIDE, "imagePullPolicy": "Always"}


def test_a_removed_container_needs_no_restoration() -> None:
    changes = differences({"containers": [APP]}, {"containers": [{**APP, "image": "x"}]})
    spec: Json = {"containers": [SIDE]}
    assert restore(spec, changes) == {}
    assert spec == {"containers": [SIDE]}
    complete(spec, {("containers", "name=app", "image"): 1, ("a", "b"): 1})
    assert spec == {"containers": [SIDE]}


@pytest.mark.parametrize(
    ("live", "wanted", "path", "does"),
    [
        ("x", "x", (), True),
        ("x", "y", (), False),
        (1, True, (), False),
        # The live value has defaults in addition; empty, false and 0 values are left out.
        ({"a": 1, "b": 2}, {"a": 1}, (), True),
        ({"a": 1}, {"a": 1, "b": 2}, (), False),
        ({"a": 1}, {"a": 1, "b": False, "c": 0, "d": "", "e": {}, "f": []}, (), True),
        ({"a": 1}, {}, (), False),
        ({}, {}, (), True),
        (None, {}, (), True),
        ({}, None, (), True),
        ("x", None, (), False),
        (None, "x", (), False),
        ([{"a": 1, "b": 2}], [{"a": 1}], (), True),
        ([1, 2], [1], (), False),
        ({"limits": {"cpu": "500m"}}, {"limits": {"cpu": "0.5"}}, ("resources",), True),
    ],
)
def test_a_live_value_with_defaults_equals_the_wanted_one(
    live: Any, wanted: Any, path: tuple[str, ...], does: bool
) -> None:
    assert covers(live, wanted, path) is does


@pytest.mark.parametrize("wanted", ["a{}", "b{}"], ids=["there", "gone"])
def test_a_list_is_scanned_a_bounded_number_of_times_for_any_record(wanted: str) -> None:
    class Counted(list[Any]):
        """A list that counts its scans."""

        reads = 0

        def __iter__(self) -> Iterator[Any]:
            self.reads += 1
            return super().__iter__()

    args = Counted(f"a{number}" for number in range(500))
    names = [wanted.format(number) for number in range(300)]
    changes = {parse_path(f'args/"{name}"'): FieldChange(None, name) for name in names}
    restore({"args": args}, changes)
    assert args.reads <= 3
    assert len(args) == (200 if wanted == "a{}" else 500)


@pytest.mark.parametrize("value", ["", ".", "m", "1 Gi", "1mi", "1Ki ", "one", True, None, [], {}, "9" * 100])
def test_a_malformed_quantity_is_not_parsed(value: Any) -> None:
    assert parse_quantity(value) is None


@pytest.mark.parametrize(
    ("left", "right", "path", "same"),
    [
        ("1", "1000m", ("containers", "resources", "limits", "cpu"), True),
        ("1Gi", 1073741824, ("requests", "memory"), True),
        ("1Gi", "1024Mi", ("emptyDir", "sizeLimit"), True),
        ("1", "2", ("limits", "cpu"), False),
        ("x", "x", ("limits", "cpu"), False),
        # A text that looks like a quantity in another field.
        ("1", "1000m", ("env", "name=A", "value"), False),
        ("1", "1000m", (), False),
    ],
)
def test_quantities_are_compared_only_in_quantity_fields(
    left: Any, right: Any, path: tuple[str, ...], same: bool
) -> None:
    assert same_quantity(left, right, path) is same


SPEC: Json = {
    "containers": [{"name": "app", "image": "app:1", "ports": [{"containerPort": 80, "protocol": "TCP"}]}],
    "volumes": [{"name": "data", "emptyDir": {}}],
}


def fill(text: str) -> str:
    return text.replace("{{nodepool}}", "hangzhou")


def applied(fields: Json) -> tuple[Json, str]:
    spec = copy.deepcopy(SPEC)
    return spec, patch_pod_spec(spec, fields, fill)


@pytest.mark.parametrize(
    ("given", "path", "value"),
    [
        (patch("add", "/containers/0/command", ["run"]), ("containers", 0, "command"), ["run"]),
        (patch("replace", "/containers/0/image", "x"), ("containers", 0, "image"), "x"),
        (patch("add", "/volumes/0", {"name": "first"}), ("volumes", 0), {"name": "first"}),
        (patch("add", "/volumes/-", {"name": "last"}), ("volumes", 1), {"name": "last"}),
        (patch("remove", "/volumes/0"), ("volumes",), []),
        # kube-apiserver's leniency: `replace` names a member that is not there.
        (patch("replace", "/hostNetwork", True), ("hostNetwork",), True),
        # A second port or mount with one key is validated by the API server.
        (
            patch("add", "/containers/0/ports/-", {"containerPort": 80, "protocol": "UDP"}),
            ("containers", 0, "ports", 1, "protocol"),
            "UDP",
        ),
        (
            patch("add", "/nodeSelector", {"a~b": "{{nodepool}}", "n": None}),
            ("nodeSelector",),
            {"a~b": "hangzhou"},
        ),
        (
            patch("add", "/volumes/0/hostPath", {"paths": ["/srv/{{nodepool}}", 1]}),
            ("volumes", 0, "hostPath", "paths"),
            ["/srv/hangzhou", 1],
        ),
    ],
)
def test_a_patch_changes_the_pod_spec(given: Json, path: tuple[str | int, ...], value: object) -> None:
    spec, reason = applied(given["patch"])
    found: Any = spec
    for part in path:
        found = found[part]
    assert (found, reason) == (value, "")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (patch("add", "/containers/0/env/-", {"name": "A"}), "PathNotFound"),
        (patch("add", "/containers/3/image", "x"), "PathNotFound"),
        (patch("add", "/containers/first/image", "x"), "PathNotFound"),
        (patch("replace", "/volumes/1", {"name": "x"}), "PathNotFound"),
        (patch("remove", "/nodeSelector"), "PathNotFound"),
        (patch("add", "/volumes/-", {"name": "data"}), "AlreadyThere"),
        (patch("add", "/containers/0", {"name": "app"}), "AlreadyThere"),
        (patch("move", "/volumes/0", 1), "PathNotAllowed"),
        ({"patch": {"operation": "add", "path": "/metadata/name", "value": "x"}}, "PathNotAllowed"),
        ({"patch": {"operation": "replace", "path": "/spec/template/spec", "value": {}}}, "PathNotAllowed"),
        ({"patch": {"operation": "add", "path": "/spec/template/specials", "value": 1}}, "PathNotAllowed"),
        ({"patch": {"operation": ["add"], "path": None}}, "PathNotAllowed"),
    ],
)
def test_a_patch_without_its_target_changes_nothing(given: Json, reason: str) -> None:
    assert applied(given["patch"]) == (SPEC, reason)


@pytest.mark.parametrize(
    ("depth", "reason"), [(MAX_DEPTH, ""), (MAX_DEPTH + 1, "ValueTooDeep"), (5000, "ValueTooDeep")]
)
def test_the_depth_of_a_value_is_bounded(depth: int, reason: str) -> None:
    value: Any = "x"
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    assert applied(patch("add", "/hostname", value)["patch"])[1] == reason
