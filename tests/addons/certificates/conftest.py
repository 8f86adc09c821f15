"""Remove the pauses of a real cluster from certificate requests."""

from __future__ import annotations

import pytest

from addons.certificates import requested_certificate, signing_request


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing_request, "POLLS", (0.001, 0.001))
    monkeypatch.setattr(requested_certificate, "RETRIES", (0.01, 0.01))
    monkeypatch.setattr(requested_certificate, "CHECK_INTERVAL", 0.05)
