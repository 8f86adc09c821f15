"""Which versions a client may resume from after an edit of the rules, in this process and over a restart."""

from __future__ import annotations

import pytest

from addons.rules.edits import RulesEdit, RulesEdits

KEPT = RulesEdit("a", 100)


@pytest.mark.parametrize(
    ("kept", "edits", "resumable", "keeps"),
    [
        (None, [], None, []),
        # What an earlier process gave is not known.
        (None, [("a", 100)], None, [RulesEdit("a", 100)]),
        (KEPT, [("b", 120)], None, [RulesEdit("b", 120)]),
        # The same rules as before the restart.
        (KEPT, [("a", 500)], 101, []),
        (KEPT, [("a", 500), ("a", 600)], 101, []),
        # Edits of this process.
        (KEPT, [("a", 500), ("b", 600)], 601, [RulesEdit("b", 600)]),
        (None, [("a", 100), ("b", 200)], 201, [RulesEdit("a", 100), RulesEdit("b", 200)]),
        (KEPT, [("a", 500), ("b", 600), ("a", 700)], 701, [RulesEdit("b", 600), RulesEdit("a", 700)]),
    ],
)
def test_a_client_resumes_above_the_last_edit(
    kept: RulesEdit | None,
    edits: list[tuple[str, int]],
    resumable: int | None,
    keeps: list[RulesEdit],
) -> None:
    kept_now: list[RulesEdit] = []
    noted = RulesEdits(kept, kept_now.append)
    for digest, version in edits:
        noted.note(digest, version)
    if resumable is None:
        assert not noted.can_resume(10**9)
    else:
        assert noted.can_resume(resumable)
        assert not noted.can_resume(resumable - 1)
    assert kept_now == keeps
