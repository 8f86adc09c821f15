"""Annotations of a Node, and the tolerations of its pods."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from controllers.autonomy import (
    DURATION,
    LONGEST_RECORD,
    SAFE_SECONDS,
    Autonomy,
    keep_ready,
    read_autonomy,
    toleration_patch,
)
from controllers.cluster.admission_reviews import MAX_VALUES, TooManyValues
from controllers.cluster.kinds import RECORDS, Node, Pod
from kube.json_type import Json

NOT_READY, UNREACHABLE = RECORDS
DEFAULT = 300
DAY = 86400
NODE = Node("n1", uid="u")
AWAY = Node("n1", uid="u", taints=({"key": UNREACHABLE, "effect": "NoExecute"},))
HELD = {"away": "86400 s"}
BEFORE = [
    {"type": "Initialized", "status": "True"},
    {"type": "Ready", "status": "True", "reason": "kubelet's"},
]
AFTER = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "False"}]


@pytest.mark.parametrize(
    ("annotations", "meant"),
    [
        ({}, None),
        ({DURATION: "24h"}, Autonomy(DAY)),
        ({DURATION: "1h30m"}, Autonomy(5400)),
        ({DURATION: "1500ms"}, Autonomy(1)),
        ({DURATION: "1ns"}, Autonomy(1)),
        ({DURATION: "0"}, Autonomy()),
        ({DURATION: "-1s"}, Autonomy()),
        ({DURATION: "1d"}, Autonomy(error='time: unknown unit "d" in duration "1d"')),
        ({DURATION: ""}, Autonomy(error='time: invalid duration ""')),
        ({DURATION: "999999h", "node.beta.openyurt.io/autonomy": "false"}, Autonomy(999999 * 3600)),
        ({DURATION: "1h", "node.beta.openyurt.io/autonomy": "true"}, Autonomy()),
        ({"apps.openyurt.io/binding": "true"}, Autonomy()),
    ],
)
def test_annotations_of_autonomy_are_parsed(annotations: dict[str, str], meant: Autonomy | None) -> None:
    assert read_autonomy(annotations) == meant


def test_autonomy_is_over_after_its_duration() -> None:
    at = datetime(2026, 1, 2, 12, 0, 10, tzinfo=UTC)
    since = "2026-01-02T12:00:00Z"
    assert [Autonomy(seconds).is_over(since, at) for seconds in (9, 10, 11, None)] == [
        True,
        True,
        False,
        False,
    ]
    assert not Autonomy(9).is_over("", at), "the node is heard"


def tolerates(taint: str, seconds: int | None, **more: str) -> Json:
    given: Json = {"key": taint, "operator": "Exists", "effect": "NoExecute", **more}
    return given if seconds is None else {**given, "tolerationSeconds": seconds}


def defaults(seconds: int | None = DEFAULT) -> tuple[Json, ...]:
    return tolerates(NOT_READY, seconds), tolerates(UNREACHABLE, seconds)


def pod(*tolerations: Json, **records: str) -> Pod:
    by_name = {"not_ready": RECORDS[NOT_READY], "unreachable": RECORDS[UNREACHABLE]}
    by_reason = {by_name[name]: value for name, value in records.items()}
    return Pod("ns", "p", "n1", tolerations, by_reason, version="7")


def patched(
    before: Pod, autonomy: Autonomy | None, node: Node = NODE, default: int = DEFAULT
) -> tuple[Any, dict[str, Any]]:
    """Return the tolerations and the records in the patch, None if it does not change them."""
    patch = toleration_patch(before, node, autonomy, default)
    assert not patch or patch["metadata"]["resourceVersion"] == "7"
    records = patch.get("metadata", {}).get("annotations", {})
    assert set(records) <= set(RECORDS.values())
    return patch.get("spec", {}).get("tolerations"), records


OTHER = {"key": "gpu", "operator": "Exists"}


SHORT = SAFE_SECONDS - 1
"""Toleration seconds of an API server that evicts soon: too short to wait for the taint."""


def test_default_tolerations_are_prolonged_and_recorded() -> None:
    tolerations, records = patched(pod(OTHER, *defaults(SHORT)), Autonomy(DAY), default=SHORT)
    assert tolerations == [OTHER, *defaults(DAY)]
    assert set(records.values()) == {str(SHORT)}
    tolerations, _ = patched(pod(*defaults(SHORT)), Autonomy(), default=SHORT)
    assert tolerations == [*defaults(None)]


@pytest.mark.parametrize("autonomy", [Autonomy(DAY), Autonomy()])
def test_a_pod_is_not_written_until_its_node_is_silent(autonomy: Autonomy) -> None:
    """Then minutes are left, and each write of a pod's spec increments its generation."""
    assert patched(pod(OTHER, *defaults()), autonomy) == (None, {})
    tolerations, records = patched(pod(OTHER, *defaults()), autonomy, AWAY)
    assert tolerations == [OTHER, tolerates(NOT_READY, DEFAULT), tolerates(UNREACHABLE, None)]
    assert records == {RECORDS[UNREACHABLE]: str(DEFAULT)}


def test_tolerations_added_to_a_pod_without_any_are_removed_again() -> None:
    tolerations, records = patched(pod(OTHER), Autonomy(DAY))
    assert tolerations == [OTHER, *defaults(DAY)]
    assert set(records.values()) == {"0"}
    given_back, records = patched(pod(OTHER, *defaults(DAY), not_ready="0", unreachable="0"), None)
    assert given_back == [OTHER, *defaults(0)]
    assert set(records.values()) == {None}


@pytest.mark.parametrize(
    "own",
    [
        defaults(30),
        defaults(None),
        ({"operator": "Exists"},),
        ({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": DEFAULT},),
        (tolerates(NOT_READY, DEFAULT, operator="Equal", value="x"), tolerates(UNREACHABLE, None)),
        (*defaults(), *defaults(30)),
    ],
)
def test_a_pods_own_tolerations_are_not_changed(own: tuple[Json, ...]) -> None:
    assert patched(pod(*own), Autonomy(DAY)) == (None, {})


def test_a_toleration_of_another_effect_does_not_cover_the_absence() -> None:
    only_scheduled = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoSchedule"}
    tolerations, _ = patched(pod(only_scheduled, *defaults(SHORT)), Autonomy(DAY), default=SHORT)
    assert tolerations == [only_scheduled, *defaults(DAY)]


@pytest.mark.parametrize(
    ("record", "seconds"),
    [
        *[("300", 300), ("30", 30), ("infinite", None), ("soon", 300), ("-1", 300)],
        ("9" * LONGEST_RECORD, 10**LONGEST_RECORD - 1),
        ("9" * (LONGEST_RECORD + 1), 300),
    ],
)
def test_recorded_tolerations_are_restored(record: str, seconds: int | None) -> None:
    tolerations, records = patched(pod(*defaults(DAY), not_ready=record, unreachable=record), None)
    assert tolerations == [*defaults(seconds)]
    assert set(records.values()) == {None}


def test_a_steady_pod_is_not_written() -> None:
    unchanged = pod(*defaults(DAY), not_ready="300", unreachable="300")
    assert toleration_patch(unchanged, NODE, Autonomy(DAY), DEFAULT) == {}
    assert toleration_patch(unchanged, AWAY, Autonomy(DAY), DEFAULT) == {}
    assert toleration_patch(pod(*defaults()), NODE, None, DEFAULT) == {}


def test_a_scheduled_eviction_is_cancelled_before_a_new_one() -> None:
    """kube-controller-manager neither extends nor shortens a scheduled eviction."""
    first, records = patched(pod(*defaults(SHORT)), Autonomy(DAY), AWAY, SHORT)
    assert first == [tolerates(NOT_READY, DAY), tolerates(UNREACHABLE, None)]
    assert set(records.values()) == {str(SHORT)}
    second, _ = patched(pod(*first, not_ready="300", unreachable="300"), Autonomy(DAY), AWAY)
    assert second == [*defaults(DAY)]

    held = pod(*defaults(DAY), not_ready="300", unreachable="300")
    first, records = patched(held, None, AWAY)
    assert first == [tolerates(NOT_READY, 300), tolerates(UNREACHABLE, None)]
    assert records == {RECORDS[NOT_READY]: None}
    second, records = patched(pod(*first, unreachable="300"), None, AWAY)
    assert second == [*defaults(300)]
    assert records == {RECORDS[UNREACHABLE]: None}


def review(node: str = "away", before: Any = BEFORE, **changes: Any) -> Json:
    pod, written = (
        {"spec": {"nodeName": node}, "status": {"conditions": conditions}} for conditions in (before, AFTER)
    )
    request = {"uid": "u", "kind": {"kind": "Pod"}, "object": written, "oldObject": pod, **changes}
    return {"kind": "AdmissionReview", "request": request}


def admission_response(given: Json) -> Json:
    found: Json = orjson.loads(keep_ready(orjson.dumps(given), HELD))["response"]
    return found


def test_a_ready_pod_of_an_autonomous_node_retains_its_conditions() -> None:
    answer = admission_response(review())
    assert (answer["uid"], answer["allowed"], answer["patchType"]) == ("u", True, "JSONPatch")
    patch = orjson.loads(base64.b64decode(answer["patch"]))
    assert patch == [{"op": "replace", "path": "/status/conditions", "value": BEFORE}]


@pytest.mark.parametrize(
    "given",
    [review("other"), review(""), review(before=AFTER), review(before=None), review(before=["Ready"])],
    ids=["another node", "no node", "unready before", "no conditions", "garbage"],
)
def test_a_pod_that_was_not_ready_on_an_autonomous_node_is_allowed_unmodified(given: Json) -> None:
    assert admission_response(given) == {"uid": "u", "allowed": True}


@pytest.mark.parametrize(
    "given",
    [{}, {"request": []}, review(uid=""), review(oldObject=None), review(kind={"kind": "Deployment"})],
)
def test_a_malformed_review_of_endpoints_is_refused(given: Json) -> None:
    with pytest.raises(ValueError, match="not a request"):
        keep_ready(orjson.dumps(given), HELD)


def test_a_too_deeply_nested_pod_is_refused() -> None:
    deep = orjson.dumps(review(before=[*BEFORE, {"at": "HERE"}])).replace(b'"HERE"', b"[" * 300 + b"]" * 300)
    with pytest.raises(ValueError, match="not a valid object"):
        keep_ready(deep, HELD)


def test_a_review_beyond_the_size_bound_is_not_parsed() -> None:
    with pytest.raises(TooManyValues, match=str(MAX_VALUES)):
        keep_ready(b"[" + b"[]," * MAX_VALUES + b"0]", HELD)
