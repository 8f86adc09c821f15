"""The hub's addresses by IP family."""

from __future__ import annotations

import pytest

from addons.filters.inputs import IPV4, IPV6, family_of


@pytest.mark.parametrize(
    ("address", "family"),
    [
        ("127.0.0.1", IPV4),
        ("169.254.2.1", IPV4),
        ("::1", IPV6),
        ("fd00::2:1", IPV6),
        ("::ffff:10.0.0.1", IPV6),
    ],
)
def test_the_family_of_an_address(address: str, family: str) -> None:
    assert family_of(address) == family
