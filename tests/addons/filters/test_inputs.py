"""The hub's addresses by IP family."""

from __future__ import annotations

import pytest

from addons.filters.inputs import IPV4, IPV6, HubAddress, family_of


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


def test_the_hub_s_first_address_of_a_family() -> None:
    hub = HubAddress(("10.0.0.1", "fd00::1", "10.0.0.2"), 10268)
    assert (hub.host_of(IPV4), hub.host_of(IPV6)) == ("10.0.0.1", "fd00::1")


@pytest.mark.parametrize("family", [IPV6, "FQDN", ""])
def test_no_address_of_a_family_is_none(family: str) -> None:
    assert HubAddress(("10.0.0.1",), 10268).host_of(family) is None
