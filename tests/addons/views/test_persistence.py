"""Checkpoints of a source's views on disk: deleted before an input changes clients' state, and written again after."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from addons.filters.filter import Filter
from addons.rules.table import parse_rules
from addons.views.persistence import Checkpoints, CheckpointStore, SourceCopy, Withdrawals
from kube.store.projection import InputKey, Projection
from kube.store.resumption import Checkpoint
from tests.kube.support.toys import Toy, ToyChain, filled

RULES = parse_rules(None)
INPUT: InputKey = ("p", "i")
FILTERS = RULES.bindings.chain("kube-proxy", "", "services", "watch")
NAMES = ",".join(each.name for each in FILTERS)


class Disk:
    """A copy whose batches are written by the test."""

    def __init__(self) -> None:
        self.former = Checkpoints()
        self.checkpoints = Checkpoints
        self.held = Checkpoints()
        self.is_asked = asyncio.Event()
        self.may_write = asyncio.Event()

    @property
    def has_checkpoints(self) -> bool:
        return bool(self.held.of_filters)

    def write_checkpoints(self) -> None:
        self.held = self.checkpoints()

    async def withdraw(self) -> None:
        self.write_checkpoints()
        self.is_asked.set()
        await self.may_write.wait()


class Stored:
    """A source with one filtered view, and its copy."""

    def __init__(self) -> None:
        self.inputs: dict[InputKey, str] = {INPUT: "keep"}
        store = filled(10, Toy(reads="i"))
        self.projection = Projection(store, ToyChain("p", self.inputs))
        self.disk, self.elsewhere = Disk(), 0
        projections: dict[tuple[Filter, ...], Projection] = {FILTERS: self.projection}
        self.store = CheckpointStore(projections, lambda: RULES, lambda: self.elsewhere)
        self.store.write_checkpoints_with(cast(SourceCopy, self.disk))

    def change(self) -> None:
        self.inputs[INPUT] = "drop"
        self.projection.inputs_changed([INPUT])

    @property
    def held(self) -> Checkpoint | None:
        return self.disk.held.of_filters.get(NAMES)


@pytest.fixture
def source() -> Stored:
    made = Stored()
    made.store.write_missing()
    return made


async def test_an_input_is_applied_after_the_checkpoint_is_deleted_from_disk(source: Stored) -> None:
    assert source.held is not None
    assert source.held[:3] == (10, 0, 0)
    assert source.store.may_be_on_disk([INPUT])
    assert not source.store.may_be_on_disk([("p", "another")])
    withdrawals = Withdrawals()
    withdrawals.begin([source.store], source.change)
    await source.disk.is_asked.wait()
    assert source.projection.get(("a", "x")) is not None
    assert source.store.may_be_on_disk([INPUT]), "the disk may have it yet"
    source.disk.may_write.set()
    await asyncio.gather(*withdrawals.tasks)
    assert source.projection.get(("a", "x")) is None
    assert source.held is not None, "the disk has what is shown now"
    assert source.held.last_incompatible == 10


async def test_an_input_without_a_checkpoint_applies_at_once(source: Stored) -> None:
    Withdrawals().begin([], source.change)
    assert source.projection.get(("a", "x")) is None


def test_a_closed_source_leaves_no_checkpoint(source: Stored) -> None:
    source.store.forget()
    assert source.held is None


def test_checkpoints_of_former_rules_are_ignored(source: Stored) -> None:
    made = Checkpoint(10, 0)
    source.disk.former = Checkpoints(RULES.digest, {NAMES: made})
    assert source.store.former(FILTERS) == made
    source.store.rules_edited()
    assert source.store.former(FILTERS) == made, "the rules are the same"
    source.disk.former = Checkpoints("other", {NAMES: made})
    assert source.store.former(FILTERS) is None
    source.projection.former = made
    source.store.rules_edited()
    assert source.projection.former is None
    assert source.disk.former == Checkpoints()
