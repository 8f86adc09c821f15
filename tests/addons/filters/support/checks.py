"""Invariants that every filter holds for any object and input, checked whenever a test applies a filter."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from addons.filters.filter import Filter
from addons.filters.verdict import Outcome, Verdict
from kube.wire.api_objects import ApiObject
from kube.wire.encoding import Encoding
from tests.addons.filters.support.samples import Notes, Sample, World, decode_again, has_unknown


@dataclass(frozen=True)
class Applied:
    """The result of applying a filter once: the decoded object, and the filter's reads and notes."""

    verdict: Verdict
    obj: ApiObject
    asked: list[tuple[str, ...]]
    notes: list[tuple[str, str, str]]

    def said(self) -> tuple[str, str]:
        return str(self.verdict.outcome), self.verdict.reason


def apply(filter_: Filter, sample: Sample, world: World, encoding: Encoding) -> Applied:
    """Apply the filter to a fresh object, and check the invariants of all filters."""
    asking, obj = replace(world, asked=[]), sample.build(encoding)
    before = obj.encode()
    verdict = filter_.apply(obj, asking)
    after = obj.encode()

    assert verdict.reason in filter_.reasons
    assert (after == before) is (verdict.outcome is not Outcome.CHANGED), (
        "KEPT and DROPPED write nothing, CHANGED does"
    )
    assert has_unknown(obj), "what the schema does not know survives"
    assert len(asking.asked) == len(set(asking.asked)), "each question is asked once"

    again = decode_again(obj)
    second = filter_.apply(again, replace(world, asked=[]))
    assert again.encode() == after, "applying twice is applying once"
    if verdict.outcome is not Outcome.CHANGED:
        assert second == verdict

    notes, explained = Notes(), sample.build(encoding)
    assert filter_.apply(explained, replace(world, asked=[]), notes) == verdict, "a note changes no verdict"
    assert (explained.encode() == before) is (after == before)
    return Applied(verdict, decode_again(obj), asking.asked, notes.lines)


@dataclass(frozen=True)
class Case:
    """A row of a filter's table: an object, its inputs, and the expected verdict."""

    name: str
    sample: Sample
    outcome: str
    reason: str
    world: World = field(default_factory=World)

    def check(self, filter_: Filter, encoding: Encoding) -> Applied:
        applied = apply(filter_, self.sample, self.world, encoding)
        assert applied.said() == (self.outcome, self.reason)
        return applied


def named(cases: list[Case]) -> list[object]:
    """Return the cases as pytest parameters, with their names as ids."""
    return [pytest.param(case, id=case.name.replace(" ", "-")) for case in cases]


def reasons_of(*tables: list[Case]) -> set[str]:
    return {case.reason for table in tables for case in table}
