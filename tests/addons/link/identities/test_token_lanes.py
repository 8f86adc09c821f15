"""Which tokens have connections of their own: those that a server accepted, and a bounded number of them."""

from __future__ import annotations

import pytest

from addons.link.identities.token_lanes import MAX_TOKENS, SHARED_LANES, TokenLanes


def is_shared(lanes: TokenLanes, token: str) -> bool:
    return lanes.lane(f"Bearer {token}").startswith("shared")


def test_a_token_has_its_own_lane_once_a_server_has_accepted_it() -> None:
    lanes = TokenLanes()
    assert is_shared(lanes, "a")
    lanes.answered("Bearer a", 200)
    lanes.answered("Bearer b", 403)
    lanes.answered("Bearer bad", 401)
    own = {lanes.lane(f"Bearer {token}") for token in "ab"}
    assert len(own) == 2
    assert not any(is_shared(lanes, token) for token in "ab")
    assert is_shared(lanes, "bad")


def test_a_token_that_is_refused_loses_its_lane() -> None:
    lanes = TokenLanes()
    lanes.answered("Bearer a", 200)
    lanes.answered("Bearer a", 401)
    assert is_shared(lanes, "a")


def test_invented_tokens_get_no_connection_and_real_ones_a_bounded_number() -> None:
    lanes = TokenLanes()
    for number in range(10_000):
        lanes.answered(f"Bearer {number}", 401)
    assert not lanes._accepted
    assert len({lanes.lane(f"Bearer {number}") for number in range(10_000)}) == SHARED_LANES
    lanes.answered("Bearer used", 200)
    for number in range(2 * MAX_TOKENS):
        lanes.answered(f"Bearer {number}", 200)
        lanes.answered("Bearer used", 200)
    assert len(lanes._accepted) == MAX_TOKENS
    assert not is_shared(lanes, "used")
    assert is_shared(lanes, "0")


@pytest.mark.parametrize(
    ("authorization", "status"),
    [("Basic {}", 403), ("Basic {}", 200), ("Bearer {}", 429), ("Bearer {}", 400), ("Bearer {}", 503)],
)
def test_what_proves_no_token_makes_no_connection(authorization: str, status: int) -> None:
    """kube-apiserver takes `Basic` for nothing: a pod had a connection to it opened for each that it invented."""
    lanes = TokenLanes()
    for number in range(2 * MAX_TOKENS):
        lanes.answered(authorization.format(number), status)
    assert len({lanes.lane(authorization.format(number)) for number in range(10_000)}) == SHARED_LANES


def test_a_token_has_one_lane_however_its_scheme_is_written() -> None:
    lanes = TokenLanes()
    lanes.answered("Bearer a", 200)
    assert lanes.lane("bEARER a") == lanes.lane("Bearer a")


def test_no_token_is_remembered_in_clear() -> None:
    lanes = TokenLanes()
    lanes.answered("Bearer secret", 200)
    assert "secret" not in repr(vars(lanes))
