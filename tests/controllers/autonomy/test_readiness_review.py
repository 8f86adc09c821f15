"""What the webhook answers where kube-controller-manager makes pods unready."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from controllers.autonomy.readiness_review import keep_ready
from controllers.cluster.admission_reviews import MAX_VALUES, TooManyValues
from kube.json_type import Json

HELD = {"away": "86400 s"}
BEFORE = [
    {"type": "Initialized", "status": "True"},
    {"type": "Ready", "status": "True", "reason": "kubelet's"},
]
AFTER = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "False"}]


def review(node: str = "away", before: Any = BEFORE, **changes: Any) -> Json:
    pod, written = (
        {"spec": {"nodeName": node}, "status": {"conditions": conditions}} for conditions in (before, AFTER)
    )
    request = {"uid": "u", "kind": {"kind": "Pod"}, "object": written, "oldObject": pod, **changes}
    return {"kind": "AdmissionReview", "request": request}


def answered(given: Json) -> Json:
    found: Json = orjson.loads(keep_ready(orjson.dumps(given), HELD))["response"]
    return found


def test_a_ready_pod_of_an_autonomous_node_keeps_its_conditions() -> None:
    answer = answered(review())
    assert (answer["uid"], answer["allowed"], answer["patchType"]) == ("u", True, "JSONPatch")
    patch = orjson.loads(base64.b64decode(answer["patch"]))
    assert patch == [{"op": "replace", "path": "/status/conditions", "value": BEFORE}]


@pytest.mark.parametrize(
    "given",
    [review("other"), review(""), review(before=AFTER), review(before=None), review(before=["Ready"])],
    ids=["another node", "no node", "unready before", "no conditions", "garbage"],
)
def test_any_other_pod_is_let_alone(given: Json) -> None:
    assert answered(given) == {"uid": "u", "allowed": True}


@pytest.mark.parametrize(
    "given",
    [{}, {"request": []}, review(uid=""), review(oldObject=None), review(kind={"kind": "Deployment"})],
)
def test_other_reviews_are_refused(given: Json) -> None:
    with pytest.raises(ValueError, match="no request"):
        keep_ready(orjson.dumps(given), HELD)


def test_a_pod_that_is_too_deep_to_be_written_is_refused() -> None:
    deep = orjson.dumps(review(before=[*BEFORE, {"at": "HERE"}])).replace(b'"HERE"', b"[" * 300 + b"]" * 300)
    with pytest.raises(ValueError, match="no object"):
        keep_ready(deep, HELD)


def test_a_review_that_would_fill_the_memory_is_not_parsed() -> None:
    with pytest.raises(TooManyValues, match=str(MAX_VALUES)):
        keep_ready(b"[" + b"[]," * MAX_VALUES + b"0]", HELD)
