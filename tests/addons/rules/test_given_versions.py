"""Which versions clients may hold with another state, for each resource, in this process and over a restart."""

from __future__ import annotations

import pytest

from addons.rules.given_versions import ANY_VERSION, GivenVersions, RulesEdit

KEPT = RulesEdit("a", {"pods": 100})


@pytest.mark.parametrize(
    ("kept", "edits", "other_rules", "elsewhere"),
    [
        # Before the first hub of a node there were no filters.
        (None, [], 0, 0),
        (None, ["a"], 0, 0),
        # The same rules as before the restart: filters had other inputs, perhaps.
        (KEPT, ["a"], 100, ANY_VERSION),
        (RulesEdit("a"), ["a"], 0, ANY_VERSION),
        # Edited while no hub ran: nobody knows how new the last versions were that the earlier process gave.
        (KEPT, ["b"], ANY_VERSION, ANY_VERSION),
        (RulesEdit("a"), ["b"], ANY_VERSION, ANY_VERSION),
        # An edit of this process.
        (None, ["a", "b"], 0, ANY_VERSION),
        (RulesEdit("a"), ["a", "b"], ANY_VERSION, ANY_VERSION),
    ],
)
def test_what_an_earlier_process_and_an_edit_leave(
    kept: RulesEdit | None, edits: list[str], other_rules: int, elsewhere: int
) -> None:
    given = GivenVersions(kept)
    for digest in edits:
        given.rules_edited(digest, {"pods": 0})
    assert (given.of_other_rules("pods"), given.of_elsewhere("pods")) == (other_rules, elsewhere)


def test_an_edit_leaves_what_was_given_before_of_what_the_cloud_said_since() -> None:
    """Who was away since then holds what filters of that process made."""
    given = GivenVersions(RulesEdit("a"))
    given.rules_edited("a", {"pods": 0})
    given.reached("pods", 120)
    given.rules_edited("b", {"pods": 7, "services": 0})
    assert (given.of_other_rules("pods"), given.of_other_rules("services")) == (120, ANY_VERSION)


def test_an_edit_leaves_what_filtered_views_gave_of_each_resource() -> None:
    """One number for all resources once refused each list of the others for ever."""
    kept: list[RulesEdit] = []
    given = GivenVersions(None, kept.append)
    given.rules_edited("a", {})
    given.rules_edited("b", {"events": 10_000, "services": 7})
    assert [given.of_other_rules(each) for each in ("events", "services", "pods")] == [10_000, 7, 0]
    given.rules_edited("c", {"services": 5})
    assert given.of_other_rules("services") == 7
    assert kept[-1] == RulesEdit("c", {"events": 10_000, "services": 7})


def test_no_number_is_above_what_its_resource_has_reached() -> None:
    """The cloud may have been restored from a backup."""
    kept: list[RulesEdit] = []
    given = GivenVersions(KEPT, kept.append)
    given.rules_edited("b", {"pods": 0, "nodes": 50})
    given.reached("pods", 120)
    assert (given.of_other_rules("pods"), given.of_elsewhere("pods")) == (120, 120)
    given.reached("pods", 30)
    given.reached("nodes", 60)
    assert (given.of_other_rules("pods"), given.of_other_rules("nodes")) == (30, 60)
    assert kept[-1].versions == {"pods": 30, "nodes": 60}
    given.rules_edited("c", {})
    assert given.of_other_rules("pods") == 30, "what the earlier process gave is known by now"


def test_where_nothing_is_kept_an_earlier_process_may_have_given_anything() -> None:
    given = GivenVersions(is_new=False)
    given.rules_edited("a", {})
    assert given.of_elsewhere("pods") == ANY_VERSION
    given.reached("pods", 9)
    assert (given.of_elsewhere("pods"), given.of_elsewhere("nodes")) == (9, ANY_VERSION)


def test_what_was_given_of_another_history_stays_for_its_resource() -> None:
    kept: list[RulesEdit] = []
    given = GivenVersions(RulesEdit("a", former={"pods": 5}), kept.append)
    given.restored("pods", 9)
    given.rules_edited("a", {})
    assert [each.former for each in kept] == [{"pods": 9}]
    given.restored("pods", 7)
    given.reached("pods", 2)
    assert (given.of_former("pods"), given.of_elsewhere("pods")) == (9, 9)
    assert given.of_former("nodes") == 0
