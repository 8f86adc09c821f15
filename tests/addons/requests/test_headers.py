"""The hub's own headers are told apart, and are valid in HTTP/2."""

from __future__ import annotations

from addons.requests import headers


def test_names_differ_and_are_lower_case() -> None:
    """RFC 9113, section 8.2.1: a field name with upper-case letters makes a request malformed."""
    names = [value for key, value in vars(headers).items() if key.endswith("_HEADER")]
    assert len(set(names)) == len(names) > 0
    assert all(name == name.lower() and name.startswith("x-edgehub-") for name in names)
