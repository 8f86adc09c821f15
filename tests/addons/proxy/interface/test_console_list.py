"""The terminal's list of flows with the component of each."""

from __future__ import annotations

from typing import Any

import pytest
from mitmproxy.options import Options
from mitmproxy.test import taddons, tflow
from mitmproxy.tools.console import window
from mitmproxy.tools.console.master import ConsoleMaster

from addons.proxy.interface.console_list import WIDTH, list_components
from addons.ui.flows.annotations import component_of

SIZE = (120, 10)


class Screen:
    """As wide as SIZE."""

    def get_cols_rows(self) -> tuple[int, int]:
        return SIZE

    def clear(self) -> None:
        """Nothing is drawn."""


@pytest.fixture
async def master() -> ConsoleMaster:
    made = ConsoleMaster(Options())
    screen: Any = Screen()
    made.ui = screen
    made.window = window.Window(made)
    return made


def lines(master: ConsoleMaster) -> list[str]:
    assert master.window is not None
    shown: Any = master.window.stacks[0].windows["flowlist"]
    canvas = shown.render(SIZE)
    return [text.decode().rstrip() for text in canvas.text if text.strip()]


async def test_each_line_begins_with_its_component_and_follows_a_change(master: ConsoleMaster) -> None:
    list_components(master, component_of)
    first, second = tflow.tflow(), tflow.tflow()
    first.comment, second.comment = "kube-proxy ▸ view ▸ GET /", "kubelet ▸ relay ▸ GET /"
    master.view.add([first, second])
    assert [line.split()[0] for line in lines(master)] == ["kube-proxy", "kubelet"]
    assert all("/path" in line[WIDTH:] for line in lines(master))
    second.comment = "● DRILL offline ▸ coredns ▸ relay ▸ GET /"
    master.view.update([second])
    assert [line.split()[0] for line in lines(master)] == ["kube-proxy", "coredns"]
    master.view.clear()
    assert lines(master) == []


async def test_a_long_name_is_cut_and_a_flow_without_a_comment_has_none(master: ConsoleMaster) -> None:
    list_components(master, component_of)
    long, without = tflow.tflow(), tflow.tflow()
    long.comment = "kube-controller-manager ▸ relay ▸ GET /"
    master.view.add([long, without])
    first, second = lines(master)
    assert first.startswith("kube-controller-m… ")
    assert not second[:WIDTH].strip()


def test_who_has_no_such_list_is_left_alone() -> None:
    with taddons.context() as context:
        list_components(context.master, component_of)
