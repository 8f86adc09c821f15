"""mitmproxy's flow list in the terminal, with each flow's component. mitmproxy's own list does not show comments."""

from __future__ import annotations

from collections.abc import Callable

import urwid  # type: ignore[import-untyped]  # it has no annotations
from mitmproxy.flow import Flow
from mitmproxy.master import Master
from mitmproxy.tools.console import flowlist
from mitmproxy.tools.console.master import ConsoleMaster

WIDTH = 18
"""Columns of a component's name. Of Kubernetes' own components only kube-controller-manager is truncated."""

type NameOf = Callable[[Flow], str]


def list_components(master: Master, name_of: NameOf) -> None:
    """Show the result of `name_of` at the beginning of each flow's line, if `master` is a running console.

    The window stores its views in a dictionary, by their names.
    """
    if isinstance(master, ConsoleMaster) and master.window is not None:
        for stack in master.window.stacks:
            stack.windows["flowlist"] = ComponentList(master, name_of)
        master.window.refresh()


class NamedFlow(flowlist.FlowItem):
    """A line of mitmproxy's list, after the component's name."""

    def __init__(self, master: ConsoleMaster, flow: Flow, name: str) -> None:
        self._name = name
        super().__init__(master, flow)  # type: ignore[no-untyped-call]  # as mitmproxy has it

    def get_text(self) -> urwid.Widget:
        name = urwid.Text(("title", self._name), wrap="ellipsis")
        line = super().get_text()  # type: ignore[no-untyped-call]  # as mitmproxy has it
        return urwid.Columns([(WIDTH, name), line], dividechars=1)


class NamedFlows(flowlist.FlowListWalker):
    """The lines of the list, created each time they are drawn."""

    def __init__(self, master: ConsoleMaster, name_of: NameOf) -> None:
        self._name_of = name_of
        super().__init__(master)  # type: ignore[no-untyped-call]  # as mitmproxy has it

    def get_focus(self) -> tuple[NamedFlow | None, int | None]:
        focus = self.master.view.focus
        return (self._named(focus.flow), focus.index) if focus.flow else (None, 0)

    def get_next(self, pos: int) -> tuple[NamedFlow | None, int | None]:
        return self._at(pos + 1)

    def get_prev(self, pos: int) -> tuple[NamedFlow | None, int | None]:
        return self._at(pos - 1)

    def _at(self, position: int) -> tuple[NamedFlow | None, int | None]:
        view = self.master.view
        return (self._named(view[position]), position) if view.inbounds(position) else (None, None)

    def _named(self, flow: Flow) -> NamedFlow:
        return NamedFlow(self.master, flow, self._name_of(flow))


class ComponentList(flowlist.FlowListBox):
    """The list of NamedFlow lines."""

    def __init__(self, master: ConsoleMaster, name_of: NameOf) -> None:
        super().__init__(master)
        self.body = NamedFlows(master, name_of)
