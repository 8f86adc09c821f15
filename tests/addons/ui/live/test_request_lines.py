"""Who gets a line for each request unasked: the log with `--access-log`, and the terminal of mitmdump."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from mitmproxy import ctx

from addons.telemetry.observation import Observation
from addons.telemetry.observations import Observations
from addons.ui.live.request_lines import tell_log_and_terminal
from tests.addons.support.report_parts import settings

SEEN = Observation(
    *(100.0, "kube-proxy", "list", "services", "", "default", "", "viewed", 200, 543, 0.0051),
    *("cloud", "view", "cached component", 42, ()),
)


@pytest.mark.parametrize(
    ("addons", "access_log", "logged", "printed"),
    [({}, False, 0, 0), ({}, True, 1, 0), ({"dumper": object()}, False, 0, 1)],
)
def test_who_is_told(
    addons: dict[str, object],
    access_log: bool,
    logged: int,
    printed: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    master: Any = SimpleNamespace(addons=addons)
    monkeypatch.setattr(ctx, "master", master, raising=False)
    monkeypatch.setattr(ctx, "options", SimpleNamespace(flow_detail=1), raising=False)
    seen = Observations()
    with caplog.at_level(logging.INFO):
        tell_log_and_terminal(seen, settings(access_log=access_log))
        seen.add(SEEN)
        seen.add(SEEN._replace(is_event=True))
    assert len(caplog.records) == logged
    assert capsys.readouterr().out.count("kube-proxy") == printed
