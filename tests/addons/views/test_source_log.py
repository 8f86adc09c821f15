"""The log's lines about a source that cannot follow the cloud."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from addons.telemetry import metrics
from addons.telemetry.log import Pace
from addons.views import source_log
from addons.views.source_log import RBAC, RBAC_OF_NODES, Failures, log_failure
from kube.errors import forbidden, unavailable
from kube.http.client import TooLarge, Unreachable
from kube.reflector.list_pages import Malformed
from kube.reflector.list_watch import ListWatch
from kube.reflector.reflector import Failure
from kube.requests.request_info import ResourceType
from tests.addons.support.observed import value_of

ROOT = Path(__file__).parents[3]
NODES = "/api/v1/nodes"


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(source_log, "_pace", Pace())


@pytest.mark.parametrize(
    ("error", "level", "told"),
    [
        (
            forbidden('nodes is forbidden: User "system:node:a"'),
            "WARNING",
            f'{NODES}: the hub lacks a right: apply {RBAC_OF_NODES} (nodes is forbidden: User "system:node:a")',
        ),
        (unavailable("etcd is slow"), "INFO", f"{NODES}: etcd is slow"),
    ],
)
def test_a_failure_is_told_once_with_what_to_do(
    caplog: pytest.LogCaptureFixture, error: Exception, level: str, told: str
) -> None:
    for _ in range(5):
        log_failure(NODES, "", error)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [(level, told)]
    log_failure("/api/v1/services", "", error)
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    "error", [Unreachable("reset"), unavailable("the cloud cannot be reached: no route")]
)
def test_an_outage_is_told_once_for_all_sources_elsewhere(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    log_failure(NODES, "", error)
    assert not caplog.records


def test_what_a_caller_may_not_see_is_the_callers_affair(caplog: pytest.LogCaptureFixture) -> None:
    log_failure(NODES, "some-token's-digest", forbidden("no"))
    assert not caplog.records


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unreachable("reset"), "broken off"),
        (TooLarge("a list"), "too large"),
        (Malformed("a frame"), "malformed"),
        (forbidden("no"), "error"),
    ],
)
def test_each_failure_is_counted_once(error: Failure, reason: str) -> None:
    counted = metrics.SOURCE_ERRORS.labels("services", reason)
    before, failures = value_of(counted), Failures(ListWatch(ResourceType("", "v1", "services")), "")
    for noted in (error, error, None, error):
        failures.note(noted, is_up=True)
    assert value_of(counted) == before + 1


def test_the_manifest_is_where_the_log_says() -> None:
    assert (ROOT / RBAC).is_file()
