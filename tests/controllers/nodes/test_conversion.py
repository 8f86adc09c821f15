"""The next actions for the nodes of a pool, from their state: tables, and complete rollouts on a test's clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controllers.nodes.conversion import (
    Direction,
    EdgeNode,
    EndJob,
    JobState,
    MakeJob,
    Move,
    Phase,
    Plan,
    Stage,
    plan,
    read_phase,
)
from controllers.nodes.pool_progress import progress
from controllers.nodes.waves import Waves

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
BEFORE = NOW - timedelta(minutes=1)
LONG_AGO = NOW - timedelta(hours=1)


def phase(name: str, since: datetime = BEFORE) -> Phase:
    """Parse `install/run`, or `upgrade/run 2` with a version."""
    name, _, version = name.partition(" ")
    direction, stage = name.split("/")
    return Phase(Direction(direction), Stage(stage), since, since, version)


def node(
    name: str = "n1", at: str = "", *, wants: bool = True, since: datetime = BEFORE, **more: Any
) -> EdgeNode:
    return EdgeNode(name, wants, phase(at, since) if at else None, **more)


def short_actions(found: Plan) -> list[str]:
    """Return the actions in short form."""
    names = {MakeJob: "job", EndJob: "end job"}
    return [
        f"{action.node} {_named(action) if isinstance(action, Move) else names[type(action)]}"
        for action in found.actions
    ]


def _named(move: Move) -> str:
    return "none" if move.phase is None else f"{move.phase.direction}/{move.phase.stage}"


RUNNING, COMPLETE, FAILED, NONE = JobState.RUNNING, JobState.COMPLETE, JobState.FAILED, JobState.NONE


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (node(wants=False), []),
        (node(), ["n1 install/start"]),
        (node(is_ready=False), []),
        (node(has_hub=True), ["n1 install/done"]),
        (node(at="install/start"), ["n1 job"]),
        (node(at="install/start", is_heard=False), []),
        (node(at="install/start", wants=False), ["n1 none"]),
        (node(at="install/run", job=RUNNING, since=NOW), []),
        (node(at="install/run", job=COMPLETE), ["n1 install/check"]),
        (node(at="install/run", job=FAILED), ["n1 install/failed"]),
        (node(at="install/run", job=NONE), ["n1 install/check"]),
        (node(at="install/check", job=RUNNING), []),
        (node(at="install/check", job=FAILED), ["n1 install/failed"]),
        (node(at="install/check", job=COMPLETE, has_hub=True), ["n1 install/done"]),
        (node(at="install/check", job=NONE, has_hub=True), ["n1 install/done"]),
        (node(at="install/check", job=COMPLETE, has_hub=True, is_ready=False), []),
        (node(at="install/check", job=COMPLETE), []),
        (node(at="install/check", job=COMPLETE, since=LONG_AGO), ["n1 install/failed"]),
        (node(at="install/check", job=COMPLETE, since=LONG_AGO, is_heard=False, is_ready=False), []),
        (node(at="install/check", job=COMPLETE, since=LONG_AGO, heard_since=BEFORE), []),
        (node(at="install/run", job=RUNNING, waiting=""), []),
        (node(at="install/run", job=RUNNING, waiting="", since=LONG_AGO), []),
        (node(at="install/run", job=RUNNING, since=LONG_AGO), ["n1 install/blocked"]),
        (node(at="install/run", job=RUNNING, waiting="ErrImagePull"), ["n1 install/blocked"]),
        (node(at="install/blocked", job=RUNNING, waiting="ErrImagePull"), []),
        (node(at="install/blocked", job=RUNNING, waiting=""), ["n1 install/run"]),
        (node(at="install/blocked", job=RUNNING, since=LONG_AGO), ["n1 end job"]),
        (node(at="install/blocked", job=RUNNING, since=LONG_AGO, is_heard=False), []),
        (node(at="install/blocked", job=RUNNING, since=LONG_AGO, heard_since=BEFORE), []),
        (node(at="install/blocked", job=RUNNING, wants=False), ["n1 end job"]),
        (node(at="install/blocked", job=FAILED), ["n1 install/failed"]),
        (node(at="install/blocked", job=COMPLETE), ["n1 install/check"]),
        (node(at="install/done"), []),
        (node(at="install/done", wants=False), ["n1 uninstall/start"]),
        (node(at="install/failed"), []),
        (node(at="install/failed", wants=False), ["n1 uninstall/start"]),
        (node(at="uninstall/start", wants=False), ["n1 job"]),
        (node(at="uninstall/start"), ["n1 install/done"]),
        (node(at="uninstall/run", wants=False, job=COMPLETE), ["n1 uninstall/check"]),
        (node(at="uninstall/check", wants=False, job=COMPLETE), ["n1 uninstall/done"]),
        (node(at="uninstall/check", wants=False, job=COMPLETE, is_ready=False), []),
        (node(at="uninstall/failed", wants=False), []),
        (node(at="uninstall/failed"), ["n1 install/start"]),
        (node(at="uninstall/done", wants=False), []),
        (node(at="uninstall/done", has_hub=True), ["n1 install/start"]),
    ],
)
def test_the_next_action_of_a_node(found: EdgeNode, expected: list[str]) -> None:
    assert short_actions(plan([found], Waves(), NOW)) == expected


def node_upgrading_to(wanted: str, at: str = "install/done", **more: Any) -> EdgeNode:
    """Return a node with a hub of version 1, whose pool desires another version."""
    return node("n1", at, **{"has_hub": True, "version": "1", "wanted_version": wanted, **more})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (node_upgrading_to(""), []),
        (node_upgrading_to("1"), []),
        (node_upgrading_to("2"), ["n1 upgrade/start"]),
        (node_upgrading_to("2", version=""), []),
        (node_upgrading_to("2", wants=False), ["n1 uninstall/start"]),
        (node_upgrading_to("2", is_ready=False), []),
        (node_upgrading_to("2", "install/failed"), []),
        (node_upgrading_to("2", "upgrade/start 2"), ["n1 job"]),
        (node_upgrading_to("3", "upgrade/start 2"), ["n1 install/done"]),
        (node_upgrading_to("", "upgrade/start 2"), ["n1 install/done"]),
        (node_upgrading_to("2", "upgrade/start 2", wants=False), ["n1 install/done"]),
        # The manager ended after creating the Job and before writing the phase.
        (node_upgrading_to("3", "upgrade/start 2", job=RUNNING), ["n1 job"]),
        (node_upgrading_to("2", "upgrade/run 2", job=RUNNING, waiting=""), []),
        (node_upgrading_to("2", "upgrade/blocked 2", job=RUNNING), []),
        (node_upgrading_to("3", "upgrade/blocked 2", job=RUNNING), ["n1 end job"]),
        (node_upgrading_to("2", "upgrade/run 2", job=FAILED), ["n1 upgrade/failed"]),
        (node_upgrading_to("2", "upgrade/run 2", job=COMPLETE), ["n1 upgrade/check"]),
        (node_upgrading_to("2", "upgrade/check 2"), []),
        (node_upgrading_to("2", "upgrade/check 2", version="2"), ["n1 upgrade/done"]),
        (node_upgrading_to("2", "upgrade/check 2", version="2", has_hub=False), []),
        (node_upgrading_to("2", "upgrade/check 2", since=LONG_AGO), ["n1 upgrade/failed"]),
        (node_upgrading_to("2", "upgrade/done 2", version="2"), []),
        (node_upgrading_to("3", "upgrade/done 2", version="2"), ["n1 upgrade/start"]),
        (node_upgrading_to("1", "upgrade/done 2", version="2"), ["n1 upgrade/start"]),
        (node_upgrading_to("2", "upgrade/failed 2"), []),
        (node_upgrading_to("2", "upgrade/failed 2", wants=False), ["n1 uninstall/start"]),
        (node_upgrading_to("3", "upgrade/failed 2"), ["n1 install/done"]),
        (node_upgrading_to("1", "upgrade/failed 2"), ["n1 install/done"]),
    ],
)
def test_the_next_action_of_a_node_whose_pool_has_a_version(found: EdgeNode, expected: list[str]) -> None:
    assert short_actions(plan([found], Waves(), NOW)) == expected


def test_a_failed_version_stops_the_pool_until_another_one_is_desired() -> None:
    def pool(version: str) -> list[EdgeNode]:
        return [
            node_upgrading_to(version, "upgrade/failed 2"),
            replace(node_upgrading_to(version), name="n2"),
        ]

    assert plan(pool("2"), Waves(), NOW).actions == ()
    found = progress(pool("2"), Waves(version="2"))
    assert (found.reason, found.message) == ("Stopped", "2 of 2 nodes have a hub, 0 of them 2; failed: n1")
    assert short_actions(plan(pool("3"), Waves(), NOW)) == ["n1 install/done"]
    assert progress(pool(""), Waves()).reason == "Complete"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (node_upgrading_to("2", "uninstall/start"), ""),
        (node_upgrading_to("2", "uninstall/start", version="2"), "2"),
    ],
)
def test_a_version_that_cannot_run_removes_no_hub(found: EdgeNode, expected: str) -> None:
    assert found.job_version == expected


@pytest.mark.parametrize(
    ("need", "has_hub", "missing"),
    [
        (
            "rolled back from hub:2: it ended",
            True,
            "its hub has version 1 and not 2 (rolled back from hub:2: it ended)",
        ),
        ("", True, "its hub has version 1 and not 2"),
        ("problems: 1", False, "its hub does not report that it is healthy (problems: 1)"),
    ],
)
def test_a_node_that_fails_is_reported_with_what_its_hub_reports(
    need: str, has_hub: bool, missing: str
) -> None:
    found = node_upgrading_to("2", "upgrade/check 2", since=LONG_AGO, need=need, has_hub=has_hub)
    [move] = plan([found], Waves(), NOW).actions
    assert isinstance(move, Move)
    assert move.message == f"{missing}, 0:05:00 after its Job"


def names(*given: str, **more: Any) -> list[EdgeNode]:
    return [node(name, **more) for name in given]


@pytest.mark.parametrize(
    ("name", "nodes", "waves", "expected"),
    [
        ("one at a time", names("n1", "n2", "n3"), Waves(), ["n1"]),
        ("two", names("n1", "n2", "n3"), Waves("2"), ["n1", "n2"]),
        ("half", names("n1", "n2", "n3", "n4"), Waves("50%"), ["n1", "n2"]),
        ("a tenth of four is one", names("n1", "n2", "n3", "n4"), Waves("10%"), ["n1"]),
        ("a wave is under way", [node("n1", "install/run", job=RUNNING), node("n2")], Waves("2"), []),
        (
            "one under way is away",
            [node("n1", "install/run", job=RUNNING, is_heard=False), node("n2")],
            Waves(),
            [],
        ),
        ("one that is away waits", [node("n1", is_ready=False, is_heard=False), node("n2")], Waves(), ["n2"]),
        ("one failed", [node("n1", "install/failed"), node("n2")], Waves("2"), []),
        (
            "who failed shall go",
            [node("n1", "install/failed", wants=False), node("n2")],
            Waves("2"),
            ["n1", "n2"],
        ),
        ("the leader last", [node("n1", leads=True), node("n2"), node("n3")], Waves("3"), ["n2", "n3"]),
        ("leaders alone", [node("n1", leads=True), node("n2", leads=True)], Waves("2"), ["n1"]),
        (
            "a leader while others are away",
            [node("n1", leads=True), node("n2", is_ready=False, is_heard=False)],
            Waves(),
            ["n1"],
        ),
        (
            "never all that can lead",
            [
                node("n1", "install/done", wants=False, can_lead=True),
                node("n2", "install/done", wants=False, can_lead=True),
                node("n3", "install/done", wants=False),
            ],
            Waves("3"),
            ["n1", "n3"],
        ),
        (
            "the only one that can lead",
            [node("n1", "install/done", wants=False, can_lead=True)],
            Waves(),
            ["n1"],
        ),
        ("an annotation is wrong", names("n1"), Waves(error="no"), []),
    ],
)
def test_conversion_starts_nodes_in_waves(
    name: str, nodes: list[EdgeNode], waves: Waves, expected: list[str]
) -> None:
    starts = [
        each.removesuffix("/start").split()[0]
        for each in short_actions(plan(nodes, waves, NOW))
        if "/start" in each
    ]
    assert starts == expected, name


def test_the_next_wave_starts_after_a_pause() -> None:
    nodes = [node("n1", "install/done", since=NOW - timedelta(seconds=40)), node("n2")]
    waves = Waves(pause=timedelta(minutes=1))
    assert plan(nodes, waves, NOW) == Plan((), 20.0)
    assert short_actions(plan(nodes, waves, NOW + timedelta(seconds=20))) == ["n2 install/start"]


def test_the_pool_is_reconciled_again_at_a_nodes_deadline() -> None:
    found = plan([node("n1", "install/check", job=COMPLETE)], Waves(), NOW)
    assert found == Plan((), 240.0)


def test_the_failure_of_a_node_has_its_reason() -> None:
    late = [
        node("n1", "install/check", since=LONG_AGO),
        node("n2", "install/check", since=LONG_AGO, is_ready=False),
    ]
    messages = [action.message for action in plan(late, Waves(), NOW).actions if isinstance(action, Move)]
    assert messages == [
        "its hub does not report that it is healthy, 0:05:00 after its Job",
        "the node is not Ready, 0:05:00 after its Job",
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("", "install", "install/run", "install/run 1 2"),
        "fly/run 2026-01-02T12:00:00Z 2026-01-02T12:00:00Z",
        "upgrade/run 2026-01-02T12:00:00Z 2026-01-02T12:00:00Z",
        "install/run 2026-01-02T12:00:00Z 2026-01-02T12:00:00Z 2",
    ],
)
def test_a_malformed_phase_is_ignored(text: str) -> None:
    assert read_phase(text) is None


def test_a_phase_survives_encoding_and_decoding() -> None:
    for found in (
        Phase(Direction.UNINSTALL, Stage.CHECK, BEFORE, NOW),
        Phase(Direction.UPGRADE, Stage.CHECK, BEFORE, NOW, "0.3.0"),
    ):
        assert read_phase(str(found)) == found


@pytest.mark.parametrize(
    ("nodes", "reason", "message"),
    [
        ([node("n1", "install/done"), node("n2", "install/done")], "Complete", "2 of 2 nodes have a hub"),
        (
            [node("n1", "install/done"), node("n2", "install/run"), node("n3")],
            "Progressing",
            "1 of 3 nodes have a hub; under way: n2",
        ),
        (
            [node("n1", "install/done"), node("n2", is_ready=False, is_heard=False)],
            "Waiting",
            "1 of 2 nodes have a hub; waiting for the node: n2",
        ),
        (
            [node("n1", "install/failed"), node("n2")],
            "Stopped",
            "0 of 2 nodes have a hub; failed: n1",
        ),
        (
            [node("n1", "install/failed"), node("n2", "install/failed", message="it has\nno disk")],
            "Stopped",
            "0 of 2 nodes have a hub; failed: n1, n2 (n2: it has no disk)",
        ),
        (
            [node("n1", "install/blocked", message="ErrImagePull: gone")],
            "Progressing",
            "0 of 1 nodes have a hub; under way: n1 (n1: ErrImagePull: gone)",
        ),
        ([node("n1", "uninstall/done", wants=False)], "Complete", "0 of 0 nodes have a hub"),
        (
            [node(f"n{number}", "install/run") for number in range(7)],
            "Progressing",
            "0 of 7 nodes have a hub; under way: n0, n1, n2, n3, n4 and 2 more",
        ),
    ],
)
def test_the_progress_of_a_pool_is_reported(nodes: list[EdgeNode], reason: str, message: str) -> None:
    found = progress(nodes, Waves())
    assert (found.reason, found.message) == (reason, message)


class Site:
    """Nodes whose Jobs succeed within a minute; counts Jobs, and how many nodes are unavailable at a time."""

    def __init__(self, count: int) -> None:
        self.nodes = [node(f"n{number:02}", leads=number == 0) for number in range(count)]
        self.jobs: list[str] = []
        self.most = 0

    def act(self, waves: Waves, now: datetime) -> None:
        for action in plan(self.nodes, waves, now).actions:
            at = next(number for number, each in enumerate(self.nodes) if each.name == action.node)
            if isinstance(action, MakeJob):
                self.jobs.append(action.node)
                self.nodes[at] = replace(self.nodes[at], phase=action.phase.at(Stage.RUN, now), job=RUNNING)
            else:
                self.nodes[at] = replace(self.nodes[at], phase=action.phase)
        self.most = max(self.most, sum(each.is_in_progress for each in self.nodes))

    def end_jobs(self) -> None:
        self.nodes = [
            replace(each, job=COMPLETE, has_hub=True) if each.job is RUNNING else each for each in self.nodes
        ]


def test_fifty_nodes_are_converted_once_in_waves_with_the_leader_last() -> None:
    site, waves, now = Site(50), Waves("10%", pause=timedelta(minutes=2)), NOW
    while progress(site.nodes, waves).reason != "Complete":
        now += timedelta(minutes=1)
        assert now < NOW + timedelta(hours=4)
        site.act(waves, now)
        site.end_jobs()
    assert sorted(site.jobs) == [each.name for each in site.nodes]
    assert site.jobs[-1] == "n00"
    assert site.most == 5
