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
        # Edited while no hub ran. Where nothing else is written, lists carry the edit's own version.
        (KEPT, 0, [("b", 120)], 120, [RulesEdit("b", 119)]),
        (KEPT, 0, [("b", 50)], 101, [RulesEdit("b", 100)]),
        # The same rules as before the restart.
        (KEPT, 0, [("a", 500)], 101, []),
        (KEPT, 0, [("a", 500), ("a", 600)], 101, []),
        # Edits of this process.
        (KEPT, 0, [("a", 500), ("b", 600)], 101, [RulesEdit("b", 100)]),
        (None, 0, [("a", 100), ("b", 200)], 1, [RulesEdit("a", 0), RulesEdit("b", 0)]),
        (KEPT, 0, [("b", 120), ("a", 130)], 120, [RulesEdit("b", 119), RulesEdit("a", 119)]),
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
    edits.note("b", 200, 150)
    assert [edits.can_resume(version) for version in (149, 150, 151)] == [False, False, True]
    edits.note("a", 300, 120)
    assert [edits.can_resume(version) for version in (150, 151)] == [False, True]


@pytest.mark.parametrize(
    ("kept", "newest_copy", "digests", "expected"),
    [
        (None, 0, "aab", [False, False, True]),
        (None, 300, "a", [True]),
        (KEPT, 0, "aab", [False, False, True]),
        (KEPT, 0, "bba", [True, False, True]),
    ],
)
def test_whether_clients_may_hold_versions_from_other_rules(
    kept: RulesEdit | None, newest_copy: int, digests: str, expected: list[bool]
) -> None:
    edits = RulesEdits(kept, None, newest_copy)
    assert [edits.note(digest, 120) for digest in digests] == expected
    assert edits.was_edited


@pytest.mark.parametrize("digests", ["", "a", "b"])
def test_a_restored_cloud_refuses_nobody_for_what_came_after_the_backup(digests: str) -> None:
    """Relayed watches were refused until the cloud's versions were as high again."""
    kept_now: list[RulesEdit] = []
    edits = RulesEdits(KEPT, kept_now.append, 300)
    for digest in digests:
        edits.note(digest, 200)
    edits.restored(50)
    edits.note("a", 51)
    assert [edits.can_resume(version) for version in (50, 51)] == [False, True]
    assert kept_now[-1].version == 50
    assert RulesEdits(kept_now[-1]).can_resume(51)
