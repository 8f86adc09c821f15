"""The addon for interfaces only: it shows flows, and sets mitmproxy's initial view."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from mitmproxy import contentviews
from mitmproxy.addons.dumper import Dumper
from mitmproxy.addons.view import View
from mitmproxy.test import taddons
from mitmproxy.tools.web.webaddons import WebAddon, WebAuth

from addons.console import Console
from addons.options import Options
from addons.ui.flows.annotations import DEFAULT_FILTER
from addons.ui.flows.interface import WEB_COLUMNS


@pytest.fixture
def web() -> Iterator[taddons.context]:
    with taddons.context(View(), WebAddon(), WebAuth()) as made:
        yield made
        made.master.addons.clear()


def test_a_hub_without_an_interface_imports_no_interface_modules() -> None:
    """Runs in its own process, as modules imported by other tests stay imported."""
    program = (
        "from addons.startup.lean_imports import leave_out_unused; leave_out_unused()\n"
        "from mitmproxy.options import Options\n"
        "from addons import hub\n"
        "from addons.proxy.master import HubMaster\n"
        "import asyncio, sys\n"
        "async def load(): return HubMaster(Options(), hub.addon)\n"
        "master = asyncio.run(load())\n"
        "assert master.addons.get('edgehub-flows') is None\n"
        "print(*(n for n in sys.modules if n.startswith(('addons.ui.flows', 'mitmproxy.tools'))))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (found.returncode, found.stdout.strip()) == (0, ""), found.stdout + found.stderr


@pytest.mark.parametrize("interface", [View, Dumper])
def test_the_interface_addons_are_added_and_removed_with_the_console(interface: type) -> None:
    flows = "edgehub-flows"
    with taddons.context(interface()) as context:
        console = Console(Options())
        context.master.addons.add(console)
        assert context.master.addons.get(flows) is not None
        context.master.addons.remove(console)
        assert context.master.addons.get(flows) is None
        assert {"kubernetes", "kubernetes watch", "kubernetes table", "kubernetes diff"} <= set(
            contentviews.registry
        )
        context.master.addons.clear()


def test_the_browsers_flow_list_starts_with_the_comment_column(web: taddons.context) -> None:
    web.master.addons.add(Console(Options()))
    assert web.options.web_columns == WEB_COLUMNS
    assert web.options.view_filter is None, "it is in the address, where a person sees it"


def test_a_column_order_set_by_a_user_is_retained(web: taddons.context) -> None:
    web.options.update(web_columns=["path"])
    web.master.addons.add(Console(Options()))
    assert web.options.web_columns == ["path"]


@pytest.mark.parametrize(("given", "shown"), [(None, DEFAULT_FILTER), ("~m GET", "~m GET")])
def test_the_console_hides_the_hubs_own_requests(given: str | None, shown: str) -> None:
    with taddons.context(View()) as context:
        context.options.update(view_filter=given)
        context.master.addons.add(Console(Options()))
        assert context.options.view_filter == shown
        context.master.addons.clear()
