"""`edgehub.NAME` as typed in mitmproxy: results, completion, and asynchronous output."""

from __future__ import annotations

import logging
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from mitmproxy import exceptions, types
from mitmproxy.test import taddons, tflow

from addons.link.drills import Drills
from addons.requests.request_context import begin
from addons.ui.commands import console_commands
from addons.ui.commands.console_commands import (
    COMPONENT,
    IN_EVENT_LOG,
    LINK,
    RESOURCE,
    VERB,
    ConsoleCommands,
    HubBeside,
)
from addons.ui.running_hub import RunningHub
from tests.addons.support.observed import until
from tests.addons.support.samples import request_context


class Typed:
    """A user at mitmproxy's command line, and the output shown later."""

    def __init__(self, context: taddons.context, addon: ConsoleCommands, drills: Drills) -> None:
        self.context = context
        self.addon = addon
        self.drills = drills
        self.shown: list[str] = []

    def __call__(self, line: str) -> Any:
        return self.context.master.commands.execute(line)

    def now(self, line: str) -> str:
        """Run a command; return its immediate output."""
        assert self(line) is None
        return self.shown.pop()

    async def later(self, line: str) -> str:
        """Run a command; return its final output."""
        assert self(line) is None
        await until(lambda: self.shown)
        return self.shown.pop()


@pytest.fixture
async def typed(hub: RunningHub, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Typed]:
    drills, beside = Drills(), HubBeside()
    drills.are_allowed = True
    addon = ConsoleCommands(beside)
    with taddons.context(addon) as context:
        made = Typed(context, addon, drills)
        monkeypatch.setattr(console_commands, "show", made.shown.append)
        beside.start(replace(hub, drills=drills))
        yield made
    drills.close()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("edgehub.status", "Online for"),
        ("edgehub.components", "seen"),
        ("edgehub.sources", "/api/v1/services"),
        ("edgehub.views", "none"),
        ("edgehub.watchers", "none"),
        ("edgehub.journal", "0 writes wait"),
        ("edgehub.rules", "discardcloudservice"),
        ("edgehub.explain chosen services default lb", "its type is LoadBalancer"),
        ("edgehub.link offline 0 0 3", "DRILL: the link is offline until"),
        ("edgehub.link slow 256 600", "slow (256 kbit/s, 600 ms)"),
        ("edgehub.link online", "the link is as it is"),
    ],
)
async def test_a_fast_console_command_prints_its_result_at_once(
    typed: Typed, line: str, message: str
) -> None:
    assert message in typed.now(line)


@pytest.mark.parametrize("line", ["edgehub.explain chosen services default lb", "edgehub.status"])
async def test_the_browsers_command_bar_refers_to_the_event_log_for_a_report(typed: Typed, line: str) -> None:
    """The command bar shows a result as JSON, with `\n` in it."""

    class Web:
        """A stand-in for an addon that only mitmweb has."""

        name = "webauth"

    typed.context.master.addons.add(Web())
    typed.addon.load(None)
    assert typed(line) == IN_EVENT_LOG
    assert typed.shown.pop().count("\n") > 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("edgehub.explain.all chosen services", "default/lb: hidden"),
        ("edgehub.dump services", "name: web"),
        ("edgehub.dump services chosen", "name: web"),
    ],
)
async def test_a_slow_console_command_prints_its_result_later(typed: Typed, line: str, message: str) -> None:
    assert message in await typed.later(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("edgehub.dump pods", "the hub keeps no copy of 'pods'"),
        ("edgehub.link slow", "kbit/s"),
        ("edgehub.link offline 0 0 61", "minutes"),
    ],
)
async def test_an_invalid_console_command_is_an_error(typed: Typed, line: str, message: str) -> None:
    with pytest.raises(exceptions.CommandError, match=message):
        typed(line)
    assert typed.drills.current is None


async def test_rules_from_a_file_are_tried(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "edit.yaml").write_text("discardcloudservice: ''\n")
    assert "chosen" in await typed.later(f"edgehub.rules.try {tmp_path}/edit.yaml")
    (tmp_path / "edit.yaml").write_text("kind: Pod\n")
    assert "the text has no ConfigMap" in await typed.later(f"edgehub.rules.try {tmp_path}/edit.yaml")
    assert "No such file" in await typed.later(f"edgehub.rules.try {tmp_path}/none.yaml")


async def test_explain_uses_the_selected_flow(typed: Typed) -> None:
    flow = tflow.tflow()
    begin(flow, request_context("/api/v1/namespaces/default/services/lb", component="chosen"))
    typed.addon.explain_flow(flow)
    shown = typed.shown.pop()
    assert "chosen get /api/v1/namespaces/default/services/lb" in shown
    assert shown.startswith("as of now"), "a flow may be old"
    begin(flow, request_context("/api/v1/services?resourceVersion=0", component="chosen"))
    typed.addon.explain_flow(flow)
    await until(lambda: typed.shown)
    assert "default/lb: hidden" in typed.shown.pop()


@pytest.mark.parametrize("target", ["/version", None])
async def test_explain_of_a_flow_without_objects_is_an_error(typed: Typed, target: str | None) -> None:
    flow = tflow.tflow()
    if target is not None:
        begin(flow, request_context(target))
    with pytest.raises(exceptions.CommandError, match="reads no objects"):
        typed.addon.explain_flow(flow)


@pytest.mark.parametrize(
    ("choice", "some"),
    [
        (COMPONENT, {"chosen", "kube-proxy", "kubelet"}),
        (RESOURCE, {"services", "endpointslices", "pods"}),
        (VERB, {"get", "list", "watch"}),
        (LINK, {"offline", "online", "slow"}),
    ],
)
async def test_arguments_are_completed(typed: Typed, choice: types.Choice, some: set[str]) -> None:
    manager = typed.context.master.commands
    kind = types.CommandTypes.get(cast(Any, choice))
    assert kind is not None
    assert some <= {*kind.completion(manager, choice, "")}
    with pytest.raises(ValueError, match="Invalid choice"):
        kind.parse(manager, choice, "nonsense")


@pytest.mark.parametrize(
    ("name", "completed"),
    [
        ("explain", {"component", "resource", "verb"}),
        ("explain.all", {"component", "resource", "verb"}),
        ("dump", {"resource"}),
        ("link", {"link"}),
    ],
)
async def test_arguments_with_known_values_are_completed(
    typed: Typed, name: str, completed: set[str]
) -> None:
    parameters: list[Any] = typed.context.master.commands.commands[f"edgehub.{name}"].parameters
    assert {each.name for each in parameters if isinstance(each.type, types.Choice)} == completed


async def test_support_writes_a_new_file_for_its_owner(typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "support.tar.gz"
    assert "bytes" in await typed.later(f"edgehub.support {path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "File exists" in await typed.later(f"edgehub.support {path}")


async def test_a_command_before_the_hub_has_started_is_an_error() -> None:
    with (
        taddons.context(ConsoleCommands(HubBeside())) as context,
        pytest.raises(exceptions.CommandError, match="the hub is starting"),
    ):
        context.master.commands.execute("edgehub.status")


def test_output_goes_to_the_event_log_without_a_console(caplog: pytest.LogCaptureFixture) -> None:
    with taddons.context(), caplog.at_level(logging.INFO):
        console_commands.show("a text")
    assert "a text" in caplog.text
