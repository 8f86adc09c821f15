"""Decides what is next for the nodes of a pool that get a hub or lose it. Pure functions of facts.

The phase of a node stands in an annotation of its Node, so a manager that begins anew goes on where the former was.
A round is one attempt: its Job has the round in its name and is made in one phase alone, so no round converts twice,
whoever deletes the Job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from controllers.runtime.unstructured import timestamp
from kube.requests.query import parse_duration

PHASE = "edgehub.io/hub-phase"
"""The annotation of a Node. Who takes it away has the node tried again."""
UNAVAILABLE = "edgehub.io/max-unavailable"
"""The annotation of a NodePool: how many of its nodes are under way at a time, a number or a percentage; 1."""
PAUSE = "edgehub.io/wave-pause"
"""The annotation of a NodePool: how long the next wave waits for; 0s."""
READY_TIMEOUT = "edgehub.io/ready-timeout"
"""The annotation of a NodePool: within what time a node must be Ready, with its hub, after its Job; 5m."""
LONGEST_NUMBER = 6
"""Digits of a number in an annotation."""


class Direction(StrEnum):
    INSTALL = "install"
    UNINSTALL = "uninstall"


class Stage(StrEnum):
    """A node is under way from START to CHECK."""

    START = "start"
    """The Job is to be made."""
    RUN = "run"
    """The Job was made."""
    CHECK = "check"
    """The Job has ended well, or is gone: what counts is whether the node comes back."""
    DONE = "done"
    FAILED = "failed"


IN_PROGRESS = (Stage.START, Stage.RUN, Stage.CHECK)


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
    """When this attempt began."""
    since: datetime

    def at(self, stage: Stage, now: datetime) -> Phase:
        return replace(self, stage=stage, since=now)

    def __str__(self) -> str:
        return f"{self.direction}/{self.stage} {timestamp(self.round)} {timestamp(self.since)}"


def read_phase(text: str) -> Phase | None:
    """None for no phase, and for what no manager wrote."""
    try:
        name, began, since = text.split(" ")
        direction, stage = name.split("/")
        times = [datetime.strptime(time, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) for time in (began, since)]
        return Phase(Direction(direction), Stage(stage), *times)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class EdgeNode:
    """The facts of a node of the pool, by which it is converted."""

    name: str
    wants_hub: bool
    phase: Phase | None = None
    is_ready: bool = True
    is_heard: bool = True
    """Whether the cloud hears the node at all; one that is away is waited for."""
    heard_since: datetime | None = None
    """When the node became Ready last, or ceased to be."""
    has_hub: bool = False
    """Whether its hub says that it is well."""
    job: JobState = JobState.NONE
    leads: bool = False
    can_lead: bool = False

    @property
    def is_in_progress(self) -> bool:
        return self.phase is not None and self.phase.stage in IN_PROGRESS

    @property
    def next_direction(self) -> Direction | None:
        """The direction of a new round; None for a node that is as its label asks, under way, or failed at that."""
        phase = self.phase
        if phase is None:
            return Direction.INSTALL if self.wants_hub else None
        wanted = Direction.INSTALL if self.wants_hub else Direction.UNINSTALL
        return wanted if phase.direction is not wanted and not self.is_in_progress else None

    @property
    def has_failed(self) -> bool:
        """Whether a person has to look at the node before the pool goes on."""
        phase = self.phase
        return phase is not None and phase.stage is Stage.FAILED and self.next_direction is None


@dataclass(frozen=True, slots=True)
class Waves:
    """The wishes of a NodePool. `error` says which annotation cannot be followed; then no wave begins."""

    max_unavailable: str = "1"
    pause: timedelta = timedelta()
    ready_timeout: timedelta = timedelta(minutes=5)
    error: str = ""

    def size(self, nodes: int) -> int:
        """How many nodes are under way at a time: a percentage is rounded down, to one at least."""
        number = int(self.max_unavailable.removesuffix("%"))
        return max(1, number * nodes // 100 if self.max_unavailable.endswith("%") else number)


def read_waves(annotations: Mapping[str, str]) -> Waves:
    given = annotations.get(UNAVAILABLE, "1")
    digits = given.removesuffix("%")
    if not (digits.isdecimal() and digits.isascii() and len(digits) <= LONGEST_NUMBER):
        return Waves(error=f"the annotation {UNAVAILABLE} is no number and no percentage")
    times: dict[str, timedelta] = {}
    for name, usual in ((PAUSE, "0s"), (READY_TIMEOUT, "5m")):
        try:
            times[name] = timedelta(seconds=max(0.0, parse_duration(annotations.get(name, usual))))
        except ValueError as error:
            return Waves(error=f"the annotation {name}: {error}")
    return Waves(given, times[PAUSE], times[READY_TIMEOUT])


@dataclass(frozen=True, slots=True)
class Move:
    """A node's next phase. `reason` and `message` are those of its condition."""

    node: str
    phase: Phase | None
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class MakeJob:
    """Make the Job of this round; then the node moves on to RUN."""

    node: str
    phase: Phase


type Action = Move | MakeJob


@dataclass(frozen=True, slots=True)
class Plan:
    """The next actions, and in how many seconds to look again if nothing changes; 0: never."""

    actions: tuple[Action, ...] = ()
    again: float = 0.0


REASONS = {
    (Direction.INSTALL, Stage.START): "Installing",
    (Direction.INSTALL, Stage.RUN): "Installing",
    (Direction.INSTALL, Stage.CHECK): "Installing",
    (Direction.INSTALL, Stage.DONE): "Installed",
    (Direction.INSTALL, Stage.FAILED): "InstallFailed",
    (Direction.UNINSTALL, Stage.START): "Uninstalling",
    (Direction.UNINSTALL, Stage.RUN): "Uninstalling",
    (Direction.UNINSTALL, Stage.CHECK): "Uninstalling",
    (Direction.UNINSTALL, Stage.DONE): "Uninstalled",
    (Direction.UNINSTALL, Stage.FAILED): "UninstallFailed",
}
"""Reasons of the Node's condition."""


def plan(nodes: Sequence[EdgeNode], waves: Waves, now: datetime) -> Plan:
    """The next actions for the nodes of a pool."""
    actions: list[Action] = []
    deadlines: list[datetime] = []
    for node in sorted(nodes, key=lambda node: node.name):
        action, deadline = _next(node, waves, now)
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


def _next(node: EdgeNode, waves: Waves, now: datetime) -> tuple[Action | None, datetime | None]:
    """The next action of a node, and by when it has to come back."""
    phase = node.phase
    if phase is None:
        if not (node.wants_hub and node.has_hub):
            return None, None
        # Somebody has installed it by hand.
        return _move(node, Phase(Direction.INSTALL, Stage.DONE, now, now)), None
    if phase.stage is Stage.START:
        return _next_of_start(node, phase, now), None
    if phase.stage not in IN_PROGRESS or node.job is JobState.RUNNING:
        return None, None
    if node.job is JobState.FAILED:
        return _move(node, phase.at(Stage.FAILED, now)), None
    if phase.stage is Stage.RUN:
        return _move(node, phase.at(Stage.CHECK, now)), None
    if node.is_ready and (node.has_hub or phase.direction is Direction.UNINSTALL):
        return _move(node, phase.at(Stage.DONE, now)), None
    if not node.is_heard:
        return None, None
    deadline = max(phase.since, node.heard_since or phase.since) + waves.ready_timeout
    if now < deadline:
        return None, deadline
    missing = "the node is not Ready" if not node.is_ready else "its hub does not say that it is well"
    return _move(node, phase.at(Stage.FAILED, now), f"{missing}, {waves.ready_timeout} after its Job"), None


def _next_of_start(node: EdgeNode, phase: Phase, now: datetime) -> Action | None:
    if node.wants_hub != (phase.direction is Direction.INSTALL):
        # The label has changed before anything was done: the node is as before this round.
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
    return _move(node, Phase(direction, Stage.START, now, now))


def _pause_end(nodes: Iterable[EdgeNode], waves: Waves) -> datetime:
    ends = (node.phase.since for node in nodes if node.phase is not None and node.phase.stage is Stage.DONE)
    return max(ends, default=datetime.min.replace(tzinfo=UTC)) + waves.pause


def _wave(nodes: Sequence[EdgeNode], waves: Waves) -> list[EdgeNode]:
    """The nodes of the next wave: Ready ones, leaders last and each by itself, and never all that can lead."""
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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pool is, in a word for the condition and in words for people."""

    reason: str
    message: str

    @property
    def is_done(self) -> bool:
        return self.reason == "Complete"


NAMED = 5
"""Nodes that a message names of each kind."""


def progress(nodes: Sequence[EdgeNode], waves: Waves) -> Progress:
    """Tell how far a pool is, for its condition."""
    wanted = [node for node in nodes if node.wants_hub]
    joined = [node for node in wanted if _has_joined(node)]
    failed = [node.name for node in nodes if node.has_failed]
    in_progress = [node.name for node in nodes if node.is_in_progress and node.is_heard]
    away = [
        node.name
        for node in nodes
        if not (node.is_heard and (node.is_ready or node.is_in_progress))
        and (node.is_in_progress or node.next_direction is not None)
    ]
    left = [node for node in nodes if node.is_in_progress or node.next_direction is not None]
    parts = [f"{len(joined)} of {len(wanted)} nodes have a hub"]
    for state, names in (("under way", in_progress), ("waiting for the node", away), ("failed", failed)):
        if names:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            parts.append(f"{state}: {', '.join(sorted(names)[:NAMED])}{more}")
    if waves.error:
        return Progress("InvalidAnnotation", waves.error)
    if failed:
        return Progress("Stopped", "; ".join(parts))
    if not left:
        return Progress("Complete", "; ".join(parts))
    return Progress("Waiting" if len(away) == len(left) else "Progressing", "; ".join(parts))


def _has_joined(node: EdgeNode) -> bool:
    phase = node.phase
    return phase is not None and phase.direction is Direction.INSTALL and phase.stage is Stage.DONE
