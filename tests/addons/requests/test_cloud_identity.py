"""An identity is the hub's own, or a user's with the token that proves it. The type allows no other."""

from __future__ import annotations

import pytest

from addons.requests.cloud_identity import HUB_IDENTITY, CloudIdentity


def test_only_the_hub_has_no_token() -> None:
    assert HUB_IDENTITY.is_hub
    assert not CloudIdentity("pod", "Bearer t").is_hub


@pytest.mark.parametrize(("user", "authorization"), [("pod", ""), ("", "Bearer t")])
def test_no_other_identity_is_without_one(user: str, authorization: str) -> None:
    with pytest.raises(ValueError, match="token"):
        CloudIdentity(user, authorization)


def test_a_token_is_not_shown_and_tokens_rotate() -> None:
    one, other = CloudIdentity("pod", "Bearer secret"), CloudIdentity("pod", "Bearer later")
    assert "secret" not in repr(one)
    assert (one == other, hash(one) == hash(other)) == (True, True)
