"""What a filter says about an object."""

from __future__ import annotations

from addons.filters.verdict import Outcome, Verdict, changed, dropped, ignore_note, kept


def test_a_verdict_is_an_outcome_and_a_reason() -> None:
    assert kept("no-service") == Verdict(Outcome.KEPT, "no-service")
    assert changed("same-pool") == Verdict(Outcome.CHANGED, "same-pool")
    assert dropped("load-balancer") == Verdict(Outcome.DROPPED, "load-balancer")
    assert len({kept("a"), kept("a"), kept("b"), dropped("a")}) == 3


def test_outcomes_are_the_words_of_metrics_and_of_explain() -> None:
    assert [str(outcome) for outcome in Outcome] == ["kept", "changed", "dropped"]


def test_the_default_note_takes_what_any_note_takes() -> None:
    ignore_note("10.0.0.3", Outcome.DROPPED, "node n3 has apps.openyurt.io/nodepool=p2, this node p1")
    assert ignore_note.__doc__
