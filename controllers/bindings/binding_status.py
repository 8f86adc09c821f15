"""The status of a binding: how many workloads it concerns, how many carry its items, and three conditions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controllers.bindings.binding import Binding
from controllers.bindings.rendering.injection import Rendering
from controllers.bindings.workloads import Workload
from controllers.cluster.node_pools import with_condition
from kube.json_type import Json

SHOWN = 3
"""Workloads that a condition's message names: a subject may have hundreds."""
LONGEST_DETAIL = 300
"""Characters of what is said of one workload."""


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """What came of a binding in one workload.

    `pending`: the workload is not yet as rendered. `refused`: what the API server said of the rendering. `contested`: a
    client that takes the rendering back, again and again.
    """

    workload: Workload
    rendering: Rendering
    pending: bool = False
    refused: str = ""
    contested: bool = False


def binding_status(
    binding: Binding, subject_exists: bool, outcomes: Sequence[WorkloadOutcome], now: datetime
) -> Json:
    """The status fields that must change, as a merge patch of the status; {} when none must.

    `found`: a workload belongs to the subject, in whatever pool. `outcomes` are those of the matching workloads.
    """
    complaints = [_complaint(binding, outcome) for outcome in outcomes]
    conditions = list(binding.conditions)
    for kind, condition in (
        ("SubjectFound", _subject_found(binding, subject_exists)),
        ("Injected", _injected(len(outcomes), complaints, outcomes)),
        ("Conflict", _conflict(binding, outcomes)),
    ):
        condition["observedGeneration"] = binding.generation
        conditions = with_condition(tuple(conditions), kind, condition, now)
    status: Json = {}
    if binding.observed != binding.generation:
        status["observedGeneration"] = binding.generation
    if binding.workloads != len(outcomes):
        status["workloads"] = len(outcomes)
    injected = sum(not reason for reason, _ in complaints)
    if binding.injected != injected:
        status["injectedWorkloads"] = injected
    if conditions != list(binding.conditions):
        status["conditions"] = conditions
    return status


def _subject_found(binding: Binding, exists: bool) -> Json:
    if exists:
        return {"status": "True", "reason": "WorkloadsFound", "message": ""}
    message = f"no workload belongs to {binding.kind} {binding.subject}"
    return {"status": "False", "reason": "NoWorkload", "message": message}


def _complaint(binding: Binding, outcome: WorkloadOutcome) -> tuple[str, str]:
    """The reason why a workload does not carry all items, and details; "" if it does."""
    if outcome.refused:
        return "Refused", outcome.refused
    if outcome.pending:
        return "Pending", "to be written"
    skipped = [str(skip) for skip in outcome.rendering.skipped if skip.binding == binding.name]
    return ("Skipped", ", ".join(skipped)) if skipped else ("", "")


def _injected(matched: int, complaints: list[tuple[str, str]], outcomes: Sequence[WorkloadOutcome]) -> Json:
    if not matched:
        return {"status": "Unknown", "reason": "NoWorkload", "message": "no workload in these pools"}
    for reason in ("Refused", "Pending", "Skipped"):
        details = [
            f"{outcome.workload.kind} {outcome.workload.name}: {detail[:LONGEST_DETAIL]}"
            for outcome, (said, detail) in zip(outcomes, complaints, strict=True)
            if said == reason
        ]
        if details:
            return {"status": "False", "reason": reason, "message": _shortened(details)}
    return {"status": "True", "reason": "AllInjected", "message": ""}


def _conflict(binding: Binding, outcomes: Sequence[WorkloadOutcome]) -> Json:
    lost = [
        f"{outcome.workload.kind} {outcome.workload.name}: {slot.slot} is set by {slot.winner}"
        for outcome in outcomes
        for slot in outcome.rendering.overridden
        if slot.binding == binding.name
    ]
    if lost:
        return {"status": "True", "reason": "Overridden", "message": _shortened(lost)}
    contested = [
        f"{outcome.workload.kind} {outcome.workload.name}" for outcome in outcomes if outcome.contested
    ]
    if contested:
        message = f"another client takes the items back in {_shortened(contested)}"
        return {"status": "True", "reason": "NotHeld", "message": message}
    return {"status": "False", "reason": "NoConflict", "message": ""}


def _shortened(details: list[str]) -> str:
    more = len(details) - SHOWN
    return "; ".join(details[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
