"""AdmissionReviews of workloads, and their responses."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.bindings.admission import json_diff, read_review, review_response
from controllers.bindings.config_binding_controller import merge_diff
from controllers.bindings.rendering.injection import Rendering, render
from controllers.bindings.rendering.slots import RECORD, read_record
from controllers.bindings.workloads import Workload
from controllers.cluster.admission_reviews import MAX_VALUES, TooManyValues
from kube.json_type import Json
from kube.objects.object_patches import apply_json_patch, merge_patch
from tests.controllers.support.workloads import DEPLOYMENT, POOL, env, image, items

ITEMS = items(image("injected"))
KEYS = st.sampled_from(["a", "b/c", "d~e"])
VALUES = st.recursive(
    st.booleans() | st.integers(0, 2) | st.text(max_size=1),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=6,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


def review(obj: Json, old: Json | None = None, **changes: Any) -> Json:
    request = {
        "uid": "u",
        "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
        "namespace": "ns",
        "object": obj,
        "oldObject": old,
    }
    return {"kind": "AdmissionReview", "request": {**request, **changes}}


def rendering(_: Workload, obj: Json, stored: Json) -> Rendering:
    return render(obj, read_record(stored), ITEMS, POOL)


def answered(asked: Json, make: Callable[[Workload, Json, Json], Rendering]) -> Json:
    """Return the webhook's answer to a review, with this rendering."""
    found = read_review(orjson.dumps(asked))
    response = review_response(found, make(found.workload, found.incoming, found.stored))
    return cast(Json, orjson.loads(response))


def operations(response: Json) -> list[Json]:
    found: list[Json] = orjson.loads(base64.b64decode(response["response"]["patch"]))
    return found


def test_a_new_workload_is_patched() -> None:
    answer = answered(review(DEPLOYMENT), rendering)
    assert answer["response"].keys() == {"uid", "allowed", "patchType", "patch"}
    assert (answer["response"]["uid"], answer["response"]["allowed"]) == ("u", True)
    paths = {each["path"]: each["op"] for each in operations(answer)}
    assert paths == {"/metadata/annotations": "add", "/spec/template/spec/containers/0/image": "replace"}


def test_a_correct_workload_is_allowed_unmodified() -> None:
    right = render(DEPLOYMENT, {}, ITEMS, POOL).workload
    assert answered(review(right, right), rendering)["response"] == {"uid": "u", "allowed": True}


def test_the_webhook_uses_the_stored_objects_record() -> None:
    stored = render(DEPLOYMENT, {}, ITEMS, POOL).workload
    forged = copy.deepcopy(stored)
    forged["metadata"]["annotations"][RECORD] = '{"image/app":{"was":"evil","set":"injected"}}'
    [operation] = operations(answered(review(forged, stored), rendering))
    assert orjson.loads(operation["value"]) == {"image/app": {"was": "app:1", "set": "injected"}}


def test_a_workload_without_a_namespace_gets_that_of_the_request() -> None:
    seen: list[Workload] = []

    def note(workload: Workload, obj: Json, _: Json) -> Rendering:
        seen.append(workload)
        return Rendering(obj, {})

    obj = {key: value for key, value in DEPLOYMENT.items() if key != "kind"}
    answered(review({**obj, "metadata": {}}), note)
    assert (seen[0].namespace, seen[0].kind) == ("ns", "Deployment")


def test_warnings_are_bounded_in_number_and_length() -> None:
    skipped = items(*(env("x" * 63, **{f"V{number}": "y"}) for number in range(9)), binding="b" * 60)

    def skipping(_: Workload, obj: Json, stored: Json) -> Rendering:
        return render(obj, {}, skipped, POOL)

    warnings = answered(review(DEPLOYMENT), skipping)["response"]["warnings"]
    assert len(warnings) == 5
    assert max(map(len, warnings)) == 120


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"request": None},
        review({}),
        review(DEPLOYMENT, uid=""),
        review(DEPLOYMENT, kind={"kind": "Pod"}),
        {**review(DEPLOYMENT), "request": []},
    ],
)
def test_a_malformed_review_of_a_workload_is_refused(asked: Json) -> None:
    with pytest.raises(ValueError, match="not a request"):
        read_review(orjson.dumps(asked))


def test_a_review_beyond_the_size_bound_is_not_parsed() -> None:
    with pytest.raises(TooManyValues, match=str(MAX_VALUES)):
        read_review(b"[" + b"[]," * MAX_VALUES + b"0]")


def test_a_too_deeply_nested_workload_is_refused() -> None:
    body = orjson.dumps(review({**DEPLOYMENT, "spec": {"at": "HERE"}})).replace(
        b'"HERE"', b"[" * 300 + b"]" * 300
    )
    with pytest.raises(ValueError, match="not a valid object"):
        read_review(body)


@given(OBJECTS, OBJECTS)
def test_the_json_patch_gives_the_rendered_workload(old: Json, new: Json) -> None:
    assert apply_json_patch(old, json_diff(old, new)) == new
    assert merge_patch(old, merge_diff(old, new)) == new
