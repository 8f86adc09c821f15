"""The Job of a node: its name, its command, and its termination message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from addons.install.commands import make_parser
from controllers.cluster.jobs import LONGEST_NAME
from controllers.nodes.conversion import Direction, Phase, Stage
from controllers.nodes.node_job import (
    DEADLINE,
    LONGEST_MESSAGE,
    arguments,
    name_of,
    node_job,
    termination_message,
    waiting_reason,
)
from kube.json_type import Json

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
ROUND = Phase(Direction.INSTALL, Stage.START, NOW, NOW)


def test_each_round_has_its_own_job_name_in_every_phase() -> None:
    name = name_of("n1", ROUND)
    assert name.startswith("edgehub-node-n1-")
    assert name_of("n1", ROUND.at(Stage.CHECK, NOW + timedelta(hours=1))) == name
    later = Phase(Direction.INSTALL, Stage.START, NOW + timedelta(seconds=1), NOW)
    assert name_of("n1", later) != name
    long, other = (name_of("n" * 200 + end, ROUND) for end in ("a", "b"))
    assert len(long) == LONGEST_NAME
    assert long != other


def test_the_programs_parser_accepts_the_jobs_command_line() -> None:
    for direction in Direction:
        version = "0.3.0" if direction is Direction.UPGRADE else ""
        phase = Phase(direction, Stage.START, NOW, NOW, version)
        options = make_parser().parse_args(arguments("n1", phase, "edgehub:1"))
        assert (options.command, str(options.root)) == (direction.value, "/host")
        if direction is Direction.UPGRADE:
            assert (options.static_pod, options.program) == ("edgehub:1", "/opt/edgehub-0.3.0/bin/edgehub")
        if direction is Direction.INSTALL:
            assert (options.static_pod, options.node) == ("edgehub:1", "n1")


def test_the_jobs_pod_runs_on_the_node_without_a_token() -> None:
    pod = node_job("kube-system", "n1", ROUND, "edgehub:1")["spec"]["template"]["spec"]
    assert pod["nodeName"] == "n1"
    assert pod["automountServiceAccountToken"] is False
    assert [each["image"] for each in pod["containers"]] == ["edgehub:1"]
    assert [each["name"] for each in pod["volumes"]] == ["host", "tmp"]


def test_an_absent_node_does_not_exceed_the_deadline_of_its_job() -> None:
    """kube-controller-manager counts a Job's deadline wherever the node is; kubelet counts a pod's from its start."""
    spec = node_job("kube-system", "n1", ROUND, "edgehub:1")["spec"]
    assert "activeDeadlineSeconds" not in spec
    assert spec["template"]["spec"]["activeDeadlineSeconds"] == DEADLINE


def test_the_termination_message_of_a_failed_job_is_read() -> None:
    def pod(message: str) -> dict[str, object]:
        return {"status": {"containerStatuses": [{"state": {"terminated": {"message": message}}}]}}

    assert termination_message([]) == ""
    assert termination_message([{"status": {}}, pod(" failed   kubeconfig  it has an exec plugin\n")]) == (
        "failed   kubeconfig  it has an exec plugin"
    )
    assert len(termination_message([pod("x" * 5000)])) == LONGEST_MESSAGE
    refused = {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on disk."}}
    assert termination_message([refused]) == "The node was low on disk."


def test_the_reason_of_a_job_that_does_not_start_is_read() -> None:
    def pod(reason: str, message: str = "") -> dict[str, object]:
        waiting = {"reason": reason, "message": message}
        return {"status": {"containerStatuses": [{"state": {"waiting": waiting}}]}}

    states: list[Json] = [{}, {"waiting": {"reason": "ContainerCreating"}}, {"running": {}}]
    for state in states:
        assert waiting_reason({"status": {"containerStatuses": [{"state": state}]}}) == ""
    assert (
        waiting_reason(pod("ErrImagePull", "not found\n"))
        == "its Job does not start: ErrImagePull: not found"
    )
    assert len(waiting_reason(pod("ErrImagePull", "x" * 5000))) == LONGEST_MESSAGE
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
    assert "Unschedulable: no node" in waiting_reason({"status": {"conditions": [condition]}})
