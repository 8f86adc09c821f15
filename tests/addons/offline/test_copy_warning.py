"""What the Warning of an answer from a copy says, and to whom."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from addons.offline.cached_relay import copy_warning

NOW = datetime(2026, 11, 23, 12, 5)
COPIED, AWAY = NOW.replace(minute=3, second=10), NOW.replace(minute=3, second=20)


@pytest.mark.parametrize(
    ("copied", "away", "is_partial", "text"),
    [
        (COPIED, AWAY, False, "copy of 12:03:10, the cloud is away since 12:03:20"),
        (None, AWAY, False, "copy, the cloud is away since 12:03:20"),
        (COPIED - timedelta(days=1), None, False, "copy of 2026-11-22 12:03:10, the cloud is away"),
        (
            COPIED,
            AWAY,
            True,
            "copy of 12:03:10, the cloud is away since 12:03:20, and this is what the node has, not all that there is",
        ),
    ],
)
def test_a_person_is_told_how_old_and_how_complete_an_answer_is(
    copied: datetime | None, away: datetime | None, is_partial: bool, text: str
) -> None:
    found = copy_warning("kubectl", NOW, copied, away, is_partial=is_partial)
    assert found == {"Warning": f'299 - "{text}"'}


def test_a_program_is_told_nothing_that_it_would_log() -> None:
    assert copy_warning("kubelet", NOW, COPIED, AWAY, is_partial=False) == {}
