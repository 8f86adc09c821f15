"""Applies filters to many objects for a report: nothing is counted, no view is touched, and the event loop goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from addons.filters.chain import apply_chain
from addons.filters.filter import Filter
from addons.filters.plugins import need_json
from addons.filters.verdict import Outcome
from addons.inputs.filter_inputs import FilterInputs
from addons.ui.explain import Note, judge
from kube.store.store import Item
from kube.wire.encoding import Encoding

BREATH = 0.01
"""Seconds of work after which the event loop serves others."""
MAX_SECONDS = 20.0
"""Seconds after which a report ends with what it has."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """What filters make of an object: None where they hide it. `pending` says that the verdict is not known yet.

    An input is missing, or the hub has the object in an encoding that a filter does not read.
    """

    item: Item | None
    pending: bool = False


def shown(item: Item, filters: tuple[Filter, ...], inputs: FilterInputs) -> Filtered:
    """What a component with these filters is shown. An object for which a filter fails is hidden, as in a view."""
    if not filters:
        return Filtered(item)
    if item.store.codec.encoding is Encoding.PROTOBUF and need_json(filters):
        return Filtered(None, pending=True)
    recorded = inputs.ask()
    try:
        obj = item.decode()
        outcome = apply_chain(filters, obj, recorded).outcome
        made = item.as_filtered(obj.encode()) if outcome is Outcome.CHANGED else item
    except Exception:
        return Filtered(None)  # the log names the filter where a view has the object
    return Filtered(None if outcome is Outcome.DROPPED else made, recorded.pending)


def why(item: Item, filters: tuple[Filter, ...], inputs: FilterInputs) -> list[Note]:
    """The decisions that dropped or changed something."""
    try:
        _, notes, _ = judge(item, filters, inputs)
    except Exception as error:
        return [Note("", "object", Outcome.DROPPED, f"cannot be filtered: {error}")]
    return [note for note in notes if note.outcome != Outcome.KEPT]


async def in_slices(items: Iterable[Item], deadline: float) -> AsyncIterator[Item]:
    """The present items, until `deadline` in monotonic seconds. Other tasks run in between."""
    breath = time.monotonic() + BREATH
    for item in list(items):
        yield item
        now = time.monotonic()
        if now > deadline:
            return
        if now > breath:
            await asyncio.sleep(0)
            breath = time.monotonic() + BREATH


def deadline() -> float:
    """The deadline of a report that begins now."""
    return time.monotonic() + MAX_SECONDS
