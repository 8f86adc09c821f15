"""Decides the next steps for a pool's nodes that get a hub, upgrade it, or lose it.

Pure functions of facts. The phase of a node is in an annotation of its Node, so a new manager continues from there. A
round is one attempt: its Job has the round in its name and is created in one phase only, so no round runs twice, even
if the Job is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from controllers.nodes.waves import Waves
from controllers.runtime.unstructured import timestamp

PHASE = "edgehub.io/hub-phase"
"""The annotation of a Node with its phase. A person removes it to have the node tried again."""


class Direction(StrEnum):
    INSTALL = "install"
    UPGRADE = "upgrade"
    """From one version to another, older or newer."""
    UNINSTALL = "uninstall"


class Stage(StrEnum):
    """The stage of a round. START to CHECK are in progress."""

    START = "start"
    """The Job is not created yet."""
    RUN = "run"
    """The Job was created."""
    BLOCKED = "blocked"
    """The Job's pod does not start, for a reason that kubelet or the Job controller reports."""
    CHECK = "check"
    """The Job has succeeded, or was deleted; the node must become Ready with the requested hub."""
    DONE = "done"
    FAILED = "failed"


IN_PROGRESS = (Stage.START, Stage.RUN, Stage.BLOCKED, Stage.CHECK)
NO_POD = "its Job has no pod"
POD_TIMEOUT = timedelta(minutes=1)
"""The time within which the Job controller must create a Job's pod."""


class JobState(StrEnum):
    NONE = "none"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Phase:
    direction: Direction
    stage: Stage
    round: datetime
    """The start time of the attempt."""
    since: datetime
    version: str = ""
    """The target version of an upgrade; "" otherwise."""

    def at(self, stage: Stage, now: datetime) -> Phase:
        return replace(self, stage=stage, since=now)

    def __str__(self) -> str:
        version = f" {self.version}" if self.version else ""
        return f"{self.direction}/{self.stage} {timestamp(self.round)} {timestamp(self.since)}{version}"


def read_phase(text: str) -> Phase | None:
    """Parse a phase; None for any text that no manager wrote."""
    try:
        name, began, since, *versions = text.split(" ")
        direction, stage = name.split("/")
        times = [datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) for time in (began, since)]
        # Only an upgrade has a version.
        (version,) = versions if direction == Direction.UPGRADE else ("", *versions)
        return Phase(Direction(direction), Stage(stage), times[0], times[1], version)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class EdgeNode:
    """The facts of a pool's node that decide its next step."""

    name: str
    wants_hub: bool
    phase: Phase | None = None
    is_ready: bool = True
    is_heard: bool = True
    """Whether the node lifecycle controller has contact with the node; the pool waits for a disconnected one."""
    heard_since: datetime | None = None
    """When the node last became Ready or not Ready."""
    has_hub: bool = False
    """Whether its hub reports that it is healthy."""
    version: str = ""
    """The version that its hub last reported; "" for none."""
    wanted_version: str = ""
    """The version that its pool requests; "" for any."""
    need: str = ""
    """The first finding about its hub in the fleet table, such as a rollback; "" for none."""
    job: JobState = JobState.NONE
    waiting: str | None = None
    """Why the Job's pod does not start; "" if it starts, None without a pod."""
    message: str = ""
    """The message of the node's condition."""
    leads: bool = False
    can_lead: bool = False

    @property
    def is_in_progress(self) -> bool:
        return self.phase is not None and self.phase.stage in IN_PROGRESS

    @property
    def job_version(self) -> str:
        """The image version of the node's Job; "" for the manager's own image. A removal uses the pool's version only
        where the hub runs it already: elsewhere its image may not run, or not be pullable."""
        removes = self.phase is not None and self.phase.direction is Direction.UNINSTALL
        return "" if removes and self.version != self.wanted_version else self.wanted_version

    @property
    def next_direction(self) -> Direction | None:
        """The direction of a new round; None if the node needs none, is in progress, or has failed at it."""
        phase = self.phase
        if phase is None:
            return Direction.INSTALL if self.wants_hub else None
        if self.is_in_progress:
            return None
        if self.wants_hub is (phase.direction is Direction.UNINSTALL):
            return Direction.INSTALL if self.wants_hub else Direction.UNINSTALL
        return Direction.UPGRADE if self._is_to_be_upgraded(phase) else None

    def _is_to_be_upgraded(self, phase: Phase) -> bool:
        """Whether the hub has another version than its pool requests, and has not failed at that version here."""
        if not self.wants_hub or not self.wanted_version or self.version in ("", self.wanted_version):
            return False
        return phase.stage is Stage.DONE or phase.version not in ("", self.wanted_version)

    @property
    def has_failed(self) -> bool:
        """Whether the node's last round failed, which stops its pool until a person acts."""
        phase = self.phase
        if phase is None or phase.stage is not Stage.FAILED or self.next_direction is not None:
            return False
        return phase.version in ("", self.wanted_version)


@dataclass(frozen=True, slots=True)
class Move:
    """A node's next phase, with `reason` and `message` for its condition."""

    node: str
    phase: Phase | None
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class MakeJob:
    """Create the Job of this round; the node then enters RUN."""

    node: str
    phase: Phase


@dataclass(frozen=True, slots=True)
class EndJob:
    """End the Job of this round early: it fails, unless it completes first."""

    node: str
    phase: Phase


type Action = Move | MakeJob | EndJob


@dataclass(frozen=True, slots=True)
class Plan:
    """The next actions, and the seconds until the next check if no facts change; 0: no check."""

    actions: tuple[Action, ...] = ()
    again: float = 0.0


REASONS = {
    (Direction.INSTALL, Stage.START): "Installing",
    (Direction.INSTALL, Stage.RUN): "Installing",
    (Direction.INSTALL, Stage.BLOCKED): "Installing",
    (Direction.INSTALL, Stage.CHECK): "Installing",
    (Direction.INSTALL, Stage.DONE): "Installed",
    (Direction.INSTALL, Stage.FAILED): "InstallFailed",
    (Direction.UPGRADE, Stage.START): "Upgrading",
    (Direction.UPGRADE, Stage.RUN): "Upgrading",
    (Direction.UPGRADE, Stage.BLOCKED): "Upgrading",
    (Direction.UPGRADE, Stage.CHECK): "Upgrading",
    (Direction.UPGRADE, Stage.DONE): "Upgraded",
    (Direction.UPGRADE, Stage.FAILED): "UpgradeFailed",
    (Direction.UNINSTALL, Stage.START): "Uninstalling",
    (Direction.UNINSTALL, Stage.RUN): "Uninstalling",
    (Direction.UNINSTALL, Stage.BLOCKED): "Uninstalling",
    (Direction.UNINSTALL, Stage.CHECK): "Uninstalling",
    (Direction.UNINSTALL, Stage.DONE): "Uninstalled",
    (Direction.UNINSTALL, Stage.FAILED): "UninstallFailed",
}
"""Reasons of the Node's condition."""


def plan(nodes: Sequence[EdgeNode], waves: Waves, now: datetime) -> Plan:
    """Return the next actions for the nodes of a pool."""
    actions: list[Action] = []
    deadlines: list[datetime] = []
    others = any(_precedes_leaders(node) for node in nodes)
    for node in sorted(nodes, key=lambda node: node.name):
        action, deadline = _next(node, waves, now, waits=node.leads and others)
        actions += [action] if action is not None else []
        deadlines += [deadline] if deadline is not None else []
    is_stopped = waves.error or any(node.has_failed for node in nodes)
    if not actions and not is_stopped and not any(node.is_in_progress for node in nodes):
        paused_until = _pause_end(nodes, waves)
        starting = _wave(nodes, waves)
        if starting and paused_until > now:
            deadlines.append(paused_until)
        elif starting:
            actions += [_start(node, now) for node in starting]
    again = min(((deadline - now).total_seconds() for deadline in deadlines), default=0.0)
    return Plan(tuple(actions), max(0.0, again))


def _precedes_leaders(node: EdgeNode) -> bool:
    return not node.leads and (node.is_in_progress or (node.next_direction is not None and node.is_ready))


def _next(
    node: EdgeNode, waves: Waves, now: datetime, *, waits: bool
) -> tuple[Action | None, datetime | None]:
    """Return the next action of a node, and its deadline. `waits`: the node leads, and other nodes come first."""
    phase = node.phase
    if phase is None:
        if not (node.wants_hub and node.has_hub):
            return None, None
        # A person has installed it by hand.
        return _move(node, Phase(Direction.INSTALL, Stage.DONE, now, now)), None
    if phase.stage is Stage.START:
        return _next_of_start(node, phase, now, waits=waits), None
    if phase.stage is Stage.FAILED and phase.version and phase.version != node.wanted_version:
        # The pool asks for another version now, and that failure holds nothing up any more.
        return _move(node, Phase(Direction.INSTALL, Stage.DONE, now, now)), None
    if phase.stage not in IN_PROGRESS:
        return None, None
    if node.job is JobState.RUNNING:
        return _next_of_job(node, phase, waves, now)
    if node.job is JobState.FAILED:
        return _move(node, phase.at(Stage.FAILED, now)), None
    if phase.stage is not Stage.CHECK:
        return _move(node, phase.at(Stage.CHECK, now)), None
    if node.is_ready and _is_as_asked(node, phase):
        return _move(node, phase.at(Stage.DONE, now)), None
    if not node.is_heard:
        return None, None
    if now < (deadline := _deadline(node, phase, waves)):
        return None, deadline
    late = f"{_missing(node, phase)}, {waves.ready_timeout} after its Job"
    return _move(node, phase.at(Stage.FAILED, now), late), None


def _next_of_job(
    node: EdgeNode, phase: Phase, waves: Waves, now: datetime
) -> tuple[Action | None, datetime | None]:
    """Return the next action of a node whose Job runs, and the deadline of a pod that does not start.

    Pulling an image has no deadline, because a link may be slow; only a reported failure to start has one.
    """
    if phase.stage is Stage.RUN:
        waiting = node.waiting
        if waiting is None:
            waiting = NO_POD if now >= phase.since + POD_TIMEOUT else ""
        return _move(node, phase.at(Stage.BLOCKED, now), waiting) if waiting else None, None
    if phase.stage is not Stage.BLOCKED:
        return None, None
    if node.waiting == "":
        return _move(node, phase.at(Stage.RUN, now)), None
    if not _is_still_asked(node, phase):
        return EndJob(node.name, phase), None
    if not node.is_heard:
        return None, None
    deadline = _deadline(node, phase, waves)
    return (EndJob(node.name, phase), None) if now >= deadline else (None, deadline)


def _deadline(node: EdgeNode, phase: Phase, waves: Waves) -> datetime:
    """Return the deadline of this stage, counted from the last change of Ready if that was later."""
    return max(phase.since, node.heard_since or phase.since) + waves.ready_timeout


def _is_still_asked(node: EdgeNode, phase: Phase) -> bool:
    """Whether the node's label and its pool's version still request this round."""
    is_asked = node.wants_hub != (phase.direction is Direction.UNINSTALL)
    return is_asked and phase.version in ("", node.wanted_version)


def _is_as_asked(node: EdgeNode, phase: Phase) -> bool:
    """Whether the hub has the requested version, or is removed as requested."""
    if phase.direction is Direction.UNINSTALL:
        return True
    return node.has_hub and phase.version in ("", node.version)


def _missing(node: EdgeNode, phase: Phase) -> str:
    if not node.is_ready:
        return "the node is not Ready"
    why = f" ({node.need})" if node.need else ""
    if not node.has_hub:
        return f"its hub does not report that it is healthy{why}"
    return f"its hub has version {node.version} and not {phase.version}{why}"


def _next_of_start(node: EdgeNode, phase: Phase, now: datetime, *, waits: bool) -> Action | None:
    if (waits or not _is_still_asked(node, phase)) and node.job is JobState.NONE:
        # The label, the version or the leader has changed before anything was done: the node is as before this round.
        before = (
            None if phase.direction is Direction.INSTALL else Phase(Direction.INSTALL, Stage.DONE, now, now)
        )
        return Move(node.name, before, "Uninstalled" if before is None else "Installed")
    return MakeJob(node.name, phase) if node.is_heard else None


def _move(node: EdgeNode, phase: Phase, message: str = "") -> Move:
    return Move(node.name, phase, REASONS[phase.direction, phase.stage], message)


def _start(node: EdgeNode, now: datetime) -> Move:
    direction = node.next_direction
    assert direction is not None
    version = node.wanted_version if direction is Direction.UPGRADE else ""
    return _move(node, Phase(direction, Stage.START, now, now, version))


def _pause_end(nodes: Iterable[EdgeNode], waves: Waves) -> datetime:
    ends = (node.phase.since for node in nodes if node.phase is not None and node.phase.stage is Stage.DONE)
    return max(ends, default=datetime.min.replace(tzinfo=UTC)) + waves.pause


def _wave(nodes: Sequence[EdgeNode], waves: Waves) -> list[EdgeNode]:
    """Return the nodes of the next wave: Ready ones, leaders last and one at a time, and never all that can lead."""
    waiting = [node for node in nodes if node.next_direction is not None and node.is_ready]
    others = sorted((node for node in waiting if not node.leads), key=lambda node: node.name)
    if not others:
        return sorted(waiting, key=lambda node: node.name)[:1]
    chosen = others[: waves.size(len(nodes))]
    able = {node.name for node in nodes if node.can_lead and node.is_ready}
    if len(able) > 1 and able <= {node.name for node in chosen}:
        last = next(node for node in reversed(chosen) if node.can_lead)
        chosen.remove(last)
    return chosen
