"""Findings as a person reads them, and whether they add up to a failure."""

from __future__ import annotations

from addons.install.checks.findings import failed, ok, warning


def test_lines_are_aligned() -> None:
    lines = [str(each) for each in (ok("disk", "a"), warning("clock", "b"), failed("rights", "c"))]
    assert lines == ["ok       disk         a", "warning  clock        b", "failed   rights       c"]
