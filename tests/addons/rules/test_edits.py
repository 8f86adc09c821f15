"""Which versions a client may resume from after an edit of the rules, in this process and over a restart."""

from __future__ import annotations

import pytest

from addons.rules.edits import RulesEdit, RulesEdits

KEPT = RulesEdit("a", 100)


@pytest.mark.parametrize(
    ("kept", "newest_copy", "edits", "resumable", "keeps"),
    [
        # Before the first hub of a node there were no filters.
        (None, 0, [], 1, []),
        (None, 0, [("a", 100)], 1, [RulesEdit("a", 0)]),
        # Edited while no hub ran.
        (KEPT, 0, [("b", 120)], 121, [RulesEdit("b", 120)]),
        # The same rules as before the restart.
        (KEPT, 0, [("a", 500)], 101, []),
        (KEPT, 0, [("a", 500), ("a", 600)], 101, []),
        # Edits of this process.
        (KEPT, 0, [("a", 500), ("b", 600)], 600, [RulesEdit("b", 599)]),
        (None, 0, [("a", 100), ("b", 200)], 200, [RulesEdit("a", 0), RulesEdit("b", 199)]),
        (KEPT, 0, [("a", 500), ("b", 600), ("a", 700)], 700, [RulesEdit("b", 599), RulesEdit("a", 699)]),
        # An earlier process gave what the copies on disk hold, under rules that this one may not know.
        (None, 300, [("a", 100)], 301, [RulesEdit("a", 300)]),
        (KEPT, 300, [("a", 500)], 101, []),
        (KEPT, 300, [("b", 120)], 301, [RulesEdit("b", 300)]),
        (KEPT, 300, [("a", 120), ("b", 200)], 301, [RulesEdit("b", 300)]),
    ],
)
def test_a_client_resumes_above_the_last_edit(
    kept: RulesEdit | None,
    newest_copy: int,
    edits: list[tuple[str, int]],
    resumable: int,
    keeps: list[RulesEdit],
) -> None:
    kept_now: list[RulesEdit] = []
    noted = RulesEdits(kept, kept_now.append, newest_copy)
    for digest, version in edits:
        noted.note(digest, version)
    assert noted.can_resume(resumable)
    assert not noted.can_resume(resumable - 1)
    assert kept_now == keeps


def test_a_version_that_was_given_before_an_edit_is_no_place_to_resume() -> None:
    edits = RulesEdits()
    edits.note("a", 100)
    edits.note("b", 200, 200)
    assert [edits.can_resume(version) for version in (199, 200, 201)] == [False, False, True]
    edits.note("a", 300, 250)
    assert [edits.can_resume(version) for version in (250, 299, 300)] == [False, False, True]
