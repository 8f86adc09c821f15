"""For any events of nodes, Jobs, labels and managers, no round creates two Jobs, and no wave exceeds its size."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controllers.nodes.conversion import (
    Direction,
    EdgeNode,
    EndJob,
    JobState,
    MakeJob,
    Move,
    Plan,
    Stage,
    plan,
    read_phase,
)
from controllers.nodes.waves import Waves

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
COUNT = 6
AT = st.integers(0, COUNT - 1)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("label", "no label", "complete", "fail", "delete job", "away", "back", "no hub", "retry"),
                *("lead", "new node", "killed manager"),
                *("version 1", "version 2", "any version", "no image"),
            ]
        ),
        AT,
    ),
    max_size=40,
)


VERSIONS = {"version 1": "1", "version 2": "2", "any version": ""}


class Pool:
    """Six nodes; the last one leads at first, and the first three can lead."""

    def __init__(self, size: int) -> None:
        self.waves = Waves(str(size), ready_timeout=timedelta(minutes=3))
        self.nodes = [
            EdgeNode(f"n{number}", True, leads=number == COUNT - 1, can_lead=number < 3)
            for number in range(COUNT)
        ]
        self.rounds: set[tuple[str, datetime]] = set()
        self.now = NOW
        self.lifetime = COUNT
        """The number of actions after which the manager is killed, amid the next one."""

    def happen(self, event: str, at: int) -> None:
        node = self.nodes[at]
        runs = node.job is JobState.RUNNING
        changes: dict[str, EdgeNode] = {
            "label": replace(node, wants_hub=True),
            "no label": replace(node, wants_hub=False),
            "complete": _with_hub(replace(node, job=JobState.COMPLETE, waiting=None)) if runs else node,
            "fail": replace(node, job=JobState.FAILED, waiting=None) if runs else node,
            "no image": replace(node, waiting="ErrImagePull") if runs else node,
            # A manager that was killed before it wrote the phase must still find the Job.
            "delete job": node
            if node.phase is not None and node.phase.stage is Stage.START
            else replace(node, job=JobState.NONE),
            "away": replace(node, is_ready=False, is_heard=False),
            "back": node
            if node.is_heard
            else replace(node, is_ready=True, is_heard=True, heard_since=self.now),
            "no hub": replace(node, has_hub=False),
            "new node": EdgeNode(node.name, node.wants_hub, wanted_version=node.wanted_version),
            "retry": replace(node, phase=None, job=JobState.NONE)
            if node.phase is not None and node.phase.stage is Stage.FAILED
            else node,
        }
        if event == "lead":
            self.nodes = [replace(each, leads=number == at) for number, each in enumerate(self.nodes)]
        elif event == "killed manager":
            self.lifetime = at
        elif event in VERSIONS:
            self.nodes = [replace(each, wanted_version=VERSIONS[event]) for each in self.nodes]
        else:
            self.nodes[at] = changes[event]

    def reconcile(self) -> None:
        """Reconcile once, like a manager that may have just started: all its state is in the cluster."""
        self.now += timedelta(minutes=1)
        self.nodes = [
            replace(node, phase=read_phase(str(node.phase)) if node.phase is not None else None)
            for node in self.nodes
        ]
        found = plan(self.nodes, self.waves, self.now)
        self.check(found)
        lifetime, self.lifetime = self.lifetime, COUNT
        for number, action in enumerate(found.actions[: lifetime + 1]):
            at, is_killed = int(action.node.removeprefix("n")), number == lifetime
            if isinstance(action, MakeJob):
                self.make_job(at, action)
            if is_killed:
                return
            if isinstance(action, MakeJob):
                self.nodes[at] = replace(self.nodes[at], phase=action.phase.at(Stage.RUN, self.now))
            elif isinstance(action, EndJob):
                assert self.nodes[at].waiting, "no Job is ended that has started"
                self.nodes[at] = replace(self.nodes[at], job=JobState.FAILED, waiting=None)
            else:
                is_new = action.phase is not None and action.phase.stage is Stage.START
                job = JobState.NONE if is_new else self.nodes[at].job
                self.nodes[at] = replace(self.nodes[at], phase=action.phase, job=job)

    def make_job(self, at: int, action: MakeJob) -> None:
        """Create the Job, unless a manager that was killed has created it."""
        node = self.nodes[at]
        if node.job is not JobState.NONE:
            assert (node.name, action.phase.round) in self.rounds
            return
        assert (node.name, action.phase.round) not in self.rounds, "a round makes one Job"
        self.rounds.add((node.name, action.phase.round))
        goes_alone = not any(each.is_in_progress for each in self.nodes if each is not node)
        assert goes_alone or not node.leads, "a leader goes by itself, however lately it was elected"
        self.nodes[at] = replace(node, job=JobState.RUNNING, waiting="")

    def check(self, found: Plan) -> None:
        assert sum(node.is_in_progress for node in self.nodes) <= self.waves.size(COUNT)
        assert all(node.is_in_progress for node in self.nodes if node.job is JobState.RUNNING), (
            "it is waited for"
        )
        starting: list[EdgeNode] = []
        for action in found.actions:
            node = self.nodes[int(action.node.removeprefix("n"))]
            if isinstance(action, Move) and action.phase is not None and action.phase.stage is Stage.START:
                starting.append(node)
        if starting:
            assert not any(node.has_failed for node in self.nodes), "a pool that has stopped begins nothing"
            assert all(node.is_ready for node in starting)
            able = [node for node in self.nodes if node.can_lead and node.is_ready]
            assert len(able) < 2 or not all(node in starting for node in able), "all that can lead at once"
            leads = any(node.leads for node in starting)
            assert len(starting) == 1 or not leads, "a leader goes by itself"
            others = (node for node in self.nodes if not node.leads and node.is_ready)
            assert not leads or all(node.next_direction is None for node in others), "a leader is last"


@given(st.integers(1, COUNT), EVENTS)
@example(1, [("killed manager", 0), ("no label", 0), ("label", 1), ("label", 1)])
def test_no_history_violates_an_invariant(size: int, events: list[tuple[str, int]]) -> None:
    pool = Pool(size)
    for event, at in events:
        pool.reconcile()
        pool.happen(event, at)


@settings(max_examples=30)
@given(st.integers(1, COUNT), EVENTS)
def test_every_conversion_succeeds_once_failures_end(size: int, events: list[tuple[str, int]]) -> None:
    pool = Pool(size)
    for event, at in events:
        pool.reconcile()
        pool.happen(event, at)
    for _ in range(100):
        for at in range(COUNT):
            pool.happen("back", at)
            pool.happen("retry", at)
            pool.happen("complete", at)
            pool.nodes[at] = _with_hub(pool.nodes[at])
        pool.reconcile()
    for node in pool.nodes:
        assert node.next_direction is None, node
        assert not node.is_in_progress, node
        assert node.phase is None or node.phase.stage is Stage.DONE, node
        assert not node.has_hub or node.wanted_version in ("", node.version), node


def _with_hub(node: EdgeNode) -> EdgeNode:
    """Return the node after its round: with a hub of the desired version that reports healthy."""
    phase = node.phase
    if phase is None or phase.direction is Direction.UNINSTALL or phase.stage is Stage.START:
        is_gone = phase is None or phase.stage is not Stage.START
        return replace(node, has_hub=False, version="") if is_gone else node
    version = phase.version or node.version or node.wanted_version or "1"
    return replace(node, has_hub=True, version=version)
