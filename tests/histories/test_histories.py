"""After any history each client holds what the cloud has, through the rules in force."""

from __future__ import annotations

import pytest

from tests.histories.pinned import PINNED
from tests.histories.runner import parsed, play


@pytest.mark.parametrize("name", PINNED)
def test_what_was_found_once_is_not_found_again(name: str) -> None:
    assert not play(parsed(PINNED[name]))
