"""Counts for each filter of a chain the objects of an answer that it changed or hid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from addons.filters.verdict import Outcome, Verdict
from addons.telemetry.observation import Tally
from kube.store.projection import Projection, Why


def tallies(names: Iterable[str], projection: Projection) -> tuple[Tally, ...]:
    """Return the counts of a projection's filters, by name, in their order."""
    return tuple(_tallies(names, projection.unchanged, projection.reasons))


def tallies_of_one(why: Why) -> tuple[Tally, ...]:
    """Return the counts of the filters that changed or hid one object."""
    if not why:
        return ()
    return tuple(
        tally for tally in _tallies([name for name, _ in why], 0, {why: 1}) if tally.changed or tally.hidden
    )


def _tallies(names: Iterable[str], unchanged: int, reasons: Mapping[Why, int]) -> Iterable[Tally]:
    """`unchanged` objects passed all filters unchanged; an object that a filter hides does not reach the later ones."""
    for name in names:
        own = [
            (verdict, count)
            for why, count in reasons.items()
            for filter_, verdict in why
            if filter_ == name and isinstance(verdict, Verdict)
        ]
        counts = {
            outcome: sum(count for verdict, count in own if verdict.outcome is outcome) for outcome in Outcome
        }
        counted = dict.fromkeys(verdict.reason for verdict, _ in own if verdict.outcome is not Outcome.KEPT)
        yield Tally(
            name,
            unchanged + counts[Outcome.KEPT],
            counts[Outcome.CHANGED],
            counts[Outcome.DROPPED],
            tuple(counted),
        )
