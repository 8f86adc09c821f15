"""Patches on a pod spec: where they apply, what they say when they do not, and the pool's name in their values."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controllers.bindings.rendering.template_patches import MAX_DEPTH, patch_pod_spec
from kube.json_type import Json
from tests.controllers.support.workloads import patch

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
        # A second port or mount of a key is the API server's to judge.
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
def test_one_without_a_place_changes_nothing(given: Json, reason: str) -> None:
    assert applied(given["patch"]) == (SPEC, reason)


@pytest.mark.parametrize(
    ("depth", "reason"), [(MAX_DEPTH, ""), (MAX_DEPTH + 1, "ValueTooDeep"), (5000, "ValueTooDeep")]
)
def test_a_value_is_only_so_deep(depth: int, reason: str) -> None:
    value: Any = "x"
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    assert applied(patch("add", "/hostname", value)["patch"])[1] == reason
