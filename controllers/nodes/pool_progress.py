"""Computes a pool's progress from the facts of its nodes, for the condition of its NodePool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controllers.nodes.conversion import Direction, EdgeNode, Stage
from controllers.nodes.waves import Waves


@dataclass(frozen=True, slots=True)
class Progress:
    """A pool's progress, as the condition's reason and as text for people."""

    reason: str
    message: str

    @property
    def is_done(self) -> bool:
        return self.reason == "Complete"


NAMED = 5
"""Nodes that a message names for each state."""
LONGEST_REASON = 200
"""Characters of a node's message within its pool's."""


def progress(nodes: Sequence[EdgeNode], waves: Waves) -> Progress:
    """Return a pool's progress, for its condition."""
    wanted = [node for node in nodes if node.wants_hub]
    joined = [node for node in wanted if _has_joined(node)]
    failed = [node.name for node in nodes if node.has_failed]
    in_progress = [node.name for node in nodes if node.is_in_progress and node.is_heard]
    reasons = {
        node.name: node.message for node in nodes if node.message and (node.has_failed or node.is_in_progress)
    }
    away = [
        node.name
        for node in nodes
        if not (node.is_heard and (node.is_ready or node.is_in_progress))
        and (node.is_in_progress or node.next_direction is not None)
    ]
    left = [node for node in nodes if node.is_in_progress or node.next_direction is not None]
    parts = [f"{len(joined)} of {len(wanted)} nodes have a hub"]
    if waves.version and joined:
        parts[0] += f", {sum(node.version == waves.version for node in joined)} of them {waves.version}"
    for state, names in (("under way", in_progress), ("waiting for the node", away), ("failed", failed)):
        if names:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            parts.append(f"{state}: {', '.join(sorted(names)[:NAMED])}{more}{_why(names, reasons)}")
    if waves.error:
        return Progress("InvalidAnnotation", waves.error)
    if failed:
        return Progress("Stopped", "; ".join(parts))
    if not left:
        return Progress("Complete", "; ".join(parts))
    return Progress("Waiting" if len(away) == len(left) else "Progressing", "; ".join(parts))


def _why(names: Sequence[str], reasons: Mapping[str, str]) -> str:
    """Return the message of the first of these nodes that has one, on one line."""
    name = min(reasons.keys() & names, default="")
    text = " ".join(reasons.get(name, "").split())
    return f" ({name}: {text[:LONGEST_REASON]})" if text else ""


def _has_joined(node: EdgeNode) -> bool:
    phase = node.phase
    if phase is None or phase.direction is Direction.UNINSTALL:
        return False
    return phase.direction is Direction.UPGRADE or phase.stage is Stage.DONE
