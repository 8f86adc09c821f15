"""Which versions a client may resume from after an edit of the rules, in this process and over a restart."""

from __future__ import annotations

import pytest

from addons.rules.edits import RulesEdit, RulesEdits

KEPT = RulesEdit("a", 100)


@pytest.mark.parametrize(
    ("kept", "edits", "resumable", "keeps"),
    [
        # Before the first hub of a node there were no filters.
        (None, [], 1, []),
        (None, [("a", 100)], 1, [RulesEdit("a", 0)]),
        # Edited while no hub ran.
        (KEPT, [("b", 120)], 121, [RulesEdit("b", 120)]),
        # The same rules as before the restart.
        (KEPT, [("a", 500)], 101, []),
        (KEPT, [("a", 500), ("a", 600)], 101, []),
        # Edits of this process.
        (KEPT, [("a", 500), ("b", 600)], 601, [RulesEdit("b", 600)]),
        (None, [("a", 100), ("b", 200)], 201, [RulesEdit("a", 0), RulesEdit("b", 200)]),
        (KEPT, [("a", 500), ("b", 600), ("a", 700)], 701, [RulesEdit("b", 600), RulesEdit("a", 700)]),
    ],
)
def test_a_client_resumes_above_the_last_edit(
    kept: RulesEdit | None,
    edits: list[tuple[str, int]],
    resumable: int,
    keeps: list[RulesEdit],
) -> None:
    kept_now: list[RulesEdit] = []
    noted = RulesEdits(kept, kept_now.append)
    for digest, version in edits:
        noted.note(digest, version)
    assert noted.can_resume(resumable)
    assert not noted.can_resume(resumable - 1)
    assert kept_now == keeps
