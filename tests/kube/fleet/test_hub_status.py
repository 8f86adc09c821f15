"""What a hub says of itself in an annotation."""

from __future__ import annotations

import pytest

from kube.fleet.hub_status import LONGEST, HubStatus, read_status

SAID = HubStatus(
    "0.2.0", "hz", "https://a:6443", since=5, stale=1, oldest=4, waiting=3, problems=2, up=9, down=8
)


def test_it_is_read_as_it_was_written() -> None:
    assert read_status(SAID.dump()) == SAID
    assert read_status(HubStatus().dump()) == HubStatus()
    assert len(SAID.dump()) < 200, "an edge link carries it"


def test_fields_of_a_newer_hub_are_left_out() -> None:
    assert read_status('{"version": "9.0.0", "mood": "good"}') == HubStatus("9.0.0")


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{", '{"pool": 1}', '{"waiting": "1"}', '{"waiting": true}', '{"waiting": -1}'),
        *('{"pool": "a\\u001b[2J"}', '{"pool": "' + "a" * LONGEST + '"}'),
    ],
    ids=lambda text: text[:20],
)
def test_what_no_hub_has_written_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_status(text)


def test_bytes_and_the_age_of_copies_are_no_change_of_their_own() -> None:
    assert HubStatus(up=1, down=2, oldest=3).lasting() == HubStatus()
    assert SAID.lasting().waiting == 3
