"""The status of a binding, by the results in its workloads."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from controllers.bindings.binding import Binding
from controllers.bindings.binding_status import WorkloadOutcome, binding_status
from controllers.bindings.rendering.injection import Overridden, Rendering, Skipped
from controllers.bindings.workloads import Workload
from kube.json_type import Json

NOW = datetime(2026, 11, 22, tzinfo=UTC)
BINDING = Binding("ns", "b", generation=3, kind="YurtAppSet", subject="shop")
DONE = Rendering({}, {})


def outcome(name: str = "web", rendering: Rendering = DONE, **fields: object) -> WorkloadOutcome:
    return replace(WorkloadOutcome(Workload("Deployment", "ns", name), rendering), **fields)  # type: ignore[arg-type]  # checked by the dataclass


def conditions(status: Json) -> dict[str, tuple[str, str, str]]:
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in status["conditions"]}


def test_all_is_well() -> None:
    status = binding_status(BINDING, True, [outcome("a"), outcome("b")], NOW)
    assert (status["observedGeneration"], status["workloads"], status["injectedWorkloads"]) == (3, 2, 2)
    assert conditions(status) == {
        "SubjectFound": ("True", "WorkloadsFound", ""),
        "Injected": ("True", "AllInjected", ""),
        "Conflict": ("False", "NoConflict", ""),
    }


def test_without_workloads_nothing_is_said_to_be_injected() -> None:
    found = conditions(binding_status(BINDING, False, [], NOW))
    assert found["SubjectFound"] == ("False", "NoWorkload", "no workload belongs to YurtAppSet shop")
    assert found["Injected"][:2] == ("Unknown", "NoWorkload")


def test_the_worst_comes_first_and_three_are_named() -> None:
    skipped = Rendering({}, {}, (Skipped("b", "image/x", "ContainerNotFound"), Skipped("other", "y", "z")))
    outcomes = [outcome(f"w{number}", skipped) for number in range(5)]
    status = binding_status(BINDING, True, outcomes, NOW)
    assert status["injectedWorkloads"] == 0
    named = "; ".join(f"Deployment w{number}: image/x: ContainerNotFound" for number in range(3))
    assert conditions(status)["Injected"] == ("False", "Skipped", f"{named}; and 2 more")
    outcomes.append(outcome("pending", pending=True))
    assert conditions(binding_status(BINDING, True, outcomes, NOW))["Injected"][1] == "Pending"
    outcomes.append(outcome("refused", pending=True, refused="422 no"))
    said = conditions(binding_status(BINDING, True, outcomes, NOW))["Injected"]
    assert said == ("False", "Refused", "Deployment refused: 422 no")


def test_who_wins_and_who_takes_back() -> None:
    lost = Rendering({}, {}, (), (Overridden("b", "image/app", "c"), Overridden("x", "replicas", "y")))
    said = conditions(binding_status(BINDING, True, [outcome(rendering=lost)], NOW))["Conflict"]
    assert said == ("True", "Overridden", "Deployment web: image/app is set by c")
    contested = conditions(binding_status(BINDING, True, [outcome(contested=True)], NOW))["Conflict"]
    assert contested[:2] == ("True", "NotHeld")
