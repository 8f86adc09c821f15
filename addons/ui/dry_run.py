"""Dry runs of filters on objects, for reports: without metrics, without changing views, and without blocking the event
loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from addons.filters.chain import apply_chain
from addons.filters.filter import Filter
from addons.filters.plugins import need_json
from addons.filters.verdict import Note as FilterNote
from addons.filters.verdict import Outcome, ignore_note
from addons.inputs.filter_inputs import FilterInputs
from kube.store.store import Item
from kube.wire.encoding import Encoding

YIELD_INTERVAL = 0.01
"""Seconds of work after which other tasks run."""
MAX_SECONDS = 20.0
"""Seconds after which a report is returned incomplete."""


@dataclass(frozen=True, slots=True)
class Note:
    """One decision of a filter."""

    filter: str
    subject: str
    outcome: str
    reason: str

    def __str__(self) -> str:
        return f"{self.filter}: {self.subject} {self.outcome}: {self.reason}"


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """An object of the cloud, and the filters' verdict on it."""

    item: Item
    outcome: Outcome
    notes: tuple[Note, ...] = ()
    """Every decision, if decisions are explained."""
    is_pending: bool = False
    """Whether the verdict is unknown: an input is missing, or a filter cannot read this copy's encoding."""
    failure: str = ""
    """Why a filter failed: the object is hidden then, as in a view."""
    raw: bytes = b""
    """The object as changed by the filters."""

    @property
    def shown(self) -> Item | None:
        """The object as the component sees it; None if it is hidden."""
        match self.outcome:
            case Outcome.KEPT:
                return self.item
            case Outcome.CHANGED:
                return self.item.as_filtered(self.raw)
        return None

    @property
    def decisive(self) -> list[Note]:
        """The decisions that dropped or changed something."""
        if self.failure:
            return [Note("", "object", Outcome.DROPPED, f"cannot be filtered: {self.failure}")]
        return [note for note in self.notes if note.outcome != Outcome.KEPT]

    @property
    def why(self) -> str:
        """These decisions as one line."""
        subjects = [note for note in self.decisive if note.subject != "object"] or self.decisive
        return "; ".join(dict.fromkeys(map(str, subjects)))


def dry_run(
    item: Item, filters: tuple[Filter, ...], inputs: FilterInputs, *, explains: bool = True
) -> DryRunResult:
    """Apply the filters to one object now. Explaining each decision costs filters more than taking it."""
    if item.store.codec.encoding is Encoding.PROTOBUF and need_json(filters):
        return DryRunResult(item, Outcome.KEPT, is_pending=True)
    notes: list[Note] = []
    outcome, raw, recorded = Outcome.KEPT, b"", inputs.ask()
    try:
        obj = item.decode()
        for filter_ in filters:
            noting = _noting(filter_.name, notes) if explains else ignore_note
            verdict = apply_chain((filter_,), obj, recorded, noting)
            notes += [Note(name, "object", step.outcome, step.reason) for name, step in verdict.steps]
            outcome = verdict.outcome if verdict.outcome is not Outcome.KEPT else outcome
            if outcome is Outcome.DROPPED:
                break
        raw = obj.encode() if outcome is Outcome.CHANGED else b""
    except Exception as error:
        # The log names the filter if a view contains the object.
        return DryRunResult(item, Outcome.DROPPED, failure=str(error))
    return DryRunResult(item, outcome, tuple(notes), recorded.pending, raw=raw)


def _noting(name: str, notes: list[Note]) -> FilterNote:
    def note(subject: str, outcome: Outcome, reason: str) -> None:
        notes.append(Note(name, subject, outcome, reason))

    return note


async def in_slices(items: Iterable[Item], deadline: float) -> AsyncIterator[Item]:
    """Yield the present items, until `deadline` (monotonic seconds). Other tasks run in between."""
    breath = time.monotonic() + YIELD_INTERVAL
    for item in list(items):
        yield item
        now = time.monotonic()
        if now > deadline:
            return
        if now > breath:
            await asyncio.sleep(0)
            breath = time.monotonic() + YIELD_INTERVAL


def deadline() -> float:
    """Return the deadline of a report that begins now."""
    return time.monotonic() + MAX_SECONDS
