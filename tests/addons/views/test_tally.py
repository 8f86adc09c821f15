"""What each filter of a chain did, by its own doing."""

from __future__ import annotations

from addons.filters.verdict import changed, dropped, kept
from addons.telemetry.observation import Tally
from addons.views.tally import _tallies, tallies_of_one
from kube.store.projection import Why


def test_each_filter_counts_what_it_did_itself() -> None:
    reasons: dict[Why, int] = {
        (("first", dropped("gone")),): 2,
        (("first", kept("fine")), ("second", changed("moved"))): 3,
        (("first", changed("cut")), ("second", dropped("empty"))): 1,
    }
    assert list(_tallies(["first", "second"], 10, reasons)) == [
        Tally("first", 13, 1, 2, ("gone", "cut")),
        Tally("second", 10, 3, 1, ("moved", "empty")),
    ]


def test_of_one_object_those_count_that_did_something() -> None:
    assert tallies_of_one((("first", kept("fine")), ("second", dropped("empty")))) == (
        Tally("second", 0, 0, 1, ("empty",)),
    )
    assert tallies_of_one(()) == ()
