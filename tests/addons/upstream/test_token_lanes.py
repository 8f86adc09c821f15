"""Which tokens have connections of their own: those that a server accepted, and a bounded number of them."""

from __future__ import annotations

from addons.upstream.token_lanes import MAX_TOKENS, SHARED, TokenLanes


def test_a_token_has_its_own_lane_once_a_server_has_accepted_it() -> None:
    lanes = TokenLanes()
    assert lanes.lane("Bearer a") == SHARED
    lanes.answered("Bearer a", 200)
    lanes.answered("Bearer b", 403)
    lanes.answered("Bearer bad", 401)
    own = {lanes.lane(f"Bearer {token}") for token in "ab"}
    assert len(own) == 2
    assert SHARED not in own
    assert lanes.lane("Bearer bad") == SHARED


def test_a_token_that_is_refused_loses_its_lane() -> None:
    lanes = TokenLanes()
    lanes.answered("Bearer a", 200)
    lanes.answered("Bearer a", 401)
    assert lanes.lane("Bearer a") == SHARED


def test_invented_tokens_get_no_connection_and_real_ones_a_bounded_number() -> None:
    lanes = TokenLanes()
    for number in range(10_000):
        lanes.answered(f"Bearer {number}", 401)
    assert not lanes._accepted
    lanes.answered("Bearer used", 200)
    for number in range(2 * MAX_TOKENS):
        lanes.answered(f"Bearer {number}", 200)
        lanes.answered("Bearer used", 200)
    assert len(lanes._accepted) == MAX_TOKENS
    assert lanes.lane("Bearer used") != SHARED
    assert lanes.lane("Bearer 0") == SHARED


def test_no_token_is_remembered_in_clear() -> None:
    lanes = TokenLanes()
    lanes.answered("Bearer secret", 200)
    assert "secret" not in repr(vars(lanes))
