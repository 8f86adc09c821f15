"""A patch takes linear time, whatever its lists and directives are."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from kube.errors import StatusError
from kube.json_type import Json
from kube.objects.object_patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, apply_patch
from kube.objects.status_update import updated
from kube.objects.strategic_diff import strategic_diff
from kube.wire.encoding import Encoding
from tests.support.cpu_time import own_seconds

MANY = 20_000
BOUND = 20e-6
"""The maximum CPU seconds per byte: about ten times the need, a tenth of a quadratic cost."""

NAMES = [f"n{number}" for number in range(MANY)]
CONDITIONS = [{"type": name, "status": "True"} for name in NAMES]
NODE: Json = {
    "kind": "Node",
    "metadata": {"name": "n", "finalizers": NAMES, "labels": dict.fromkeys(NAMES, "x")},
    "status": {"conditions": CONDITIONS},
}
OTHERS = [f"o{number}" for number in range(MANY)]

PATCHES: dict[str, tuple[str, Any]] = {
    "conditions": (STRATEGIC_MERGE_PATCH, {"status": {"conditions": CONDITIONS[::-1]}}),
    "finalizers": (STRATEGIC_MERGE_PATCH, {"metadata": {"finalizers": OTHERS}}),
    "deleted finalizers": (
        STRATEGIC_MERGE_PATCH,
        {"metadata": {"$deleteFromPrimitiveList/finalizers": NAMES}},
    ),
    "deleted conditions": (
        STRATEGIC_MERGE_PATCH,
        {"status": {"conditions": [{"$patch": "delete", "type": name} for name in NAMES]}},
    ),
    "order": (
        STRATEGIC_MERGE_PATCH,
        {
            "status": {
                "$setElementOrder/conditions": [{"type": name} for name in NAMES],
                "conditions": CONDITIONS,
            }
        },
    ),
    "orders": (STRATEGIC_MERGE_PATCH, {"status": {f"$setElementOrder/{name}": [] for name in NAMES}}),
    "retained keys": (
        STRATEGIC_MERGE_PATCH,
        {"metadata": {"labels": {"$retainKeys": OTHERS + NAMES, **dict.fromkeys(NAMES, "y")}}},
    ),
    "merge": (MERGE_PATCH, {"metadata": {"labels": dict.fromkeys(OTHERS, "y")}}),
    "deep": (MERGE_PATCH, json.loads('{"a":' * 200 + "1" + "}" * 200)),
    "adds": (
        JSON_PATCH,
        [{"op": "add", "path": "/metadata/finalizers/0", "value": "x"} for _ in range(MANY // 2)],
    ),
    "removes": (JSON_PATCH, [{"op": "remove", "path": "/metadata/finalizers/0"} for _ in range(MANY // 2)]),
    "tests": (
        JSON_PATCH,
        [{"op": "test", "path": "/metadata/labels", "value": {"a": "b"}} for _ in range(MANY // 2)],
    ),
    "copies": (
        JSON_PATCH,
        [
            {"op": "copy", "from": "/metadata/labels", "path": f"/metadata/c{each}"}
            for each in range(MANY // 2)
        ],
    ),
    "long paths": (JSON_PATCH, [{"op": "add", "path": "/metadata/labels" + "/a" * MANY, "value": "x"}]),
}


def cost(call: Callable[[], object]) -> float:
    def refused_or_not() -> None:
        with suppress(StatusError):
            call()

    return own_seconds(refused_or_not)


@pytest.mark.parametrize("name", PATCHES)
def test_the_cost_of_a_patch_grows_linearly(name: str) -> None:
    content_type, content = PATCHES[name]
    patch = json.dumps(content).encode()
    size = len(patch) + len(json.dumps(NODE))
    assert cost(lambda: apply_patch(content_type, NODE, patch, "Node")) < BOUND * size


@pytest.mark.parametrize(
    "after",
    [
        {**NODE, "metadata": {"name": "n", "finalizers": OTHERS}},
        {**NODE, "status": {"conditions": CONDITIONS[::-1]}},
        {**NODE, "status": {"conditions": [{"type": name, "status": "False"} for name in OTHERS]}},
    ],
    ids=["finalizers", "order", "conditions"],
)
def test_the_cost_of_a_difference_grows_linearly_with_the_objects(after: Json) -> None:
    size = len(json.dumps(NODE)) + len(json.dumps(after))
    assert cost(lambda: strategic_diff(NODE, after, "Node")) < BOUND * size


@pytest.mark.parametrize(
    "text", ["1" * MANY + "x", "1" * MANY + "e", "." + "1" * MANY + ".", "2024-01-01T00:00:00." + "1" * MANY]
)
@pytest.mark.parametrize(
    "status",
    [lambda text: {"capacity": {"cpu": text}}, lambda text: {"conditions": [{"lastHeartbeatTime": text}]}],
    ids=["quantity", "time"],
)
def test_the_cost_of_a_quantity_grows_linearly_with_its_text(
    status: Callable[[str], Json], text: str
) -> None:
    """A capacity of 20,000 digits once took ten seconds."""
    raw = b'{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}'
    patch = json.dumps({"status": status(text)}).encode()
    write = partial(updated, Encoding.JSON, "v1", "Node", raw, "PATCH", MERGE_PATCH, patch)
    assert cost(write) < BOUND * len(patch)
