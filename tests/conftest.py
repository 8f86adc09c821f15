"""Rules for every test: what needs Go runs only with `--real`, tests leave no tasks, and nothing blocks an event
loop."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from kube.wire.encoding import Encoding
from tests.support import blocking

# No example is timed, because a busy machine's times say nothing about the code. CI tries the same examples each time,
# so that its result depends on the commit; every other run tries new ones.
settings.register_profile(
    "edgehub", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("edgehub")

pytest_plugins = ["tests.cloud.fixtures"]

HUBS = Path(__file__).parent / "hub"
"""The folder whose files start hub processes."""
LONGEST = ("test_borrowed_links.py", "test_uplinks.py", "test_faults_upstream.py")
"""Modules of tests that wait for a minute or two, the longest first."""

# pytest caches its rewritten asserts, whatever the environment says: to rewrite them takes each process 8 s.
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--real", action="store_true", help="run also what needs the real control plane")
    parser.addoption("--node", action="store_true", help="run also what needs a real node, as root")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names bytes by their number: what a compressor makes of a text holds the time, and a test's name may not."""
    return f"{argname} of {len(val)}" if isinstance(val, bytes) and len(val) > 8 else None


def pytest_configure() -> None:
    blocking.install()
    # looptime asks for the current loop in synchronous tests too; unless None was set as the loop, asyncio
    # makes one, with a warning, that is never closed.
    asyncio.set_event_loop(None)


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    is_package = "PYTEST_XDIST_WORKER" in os.environ and (path / "__init__.py").is_file()
    return _RotatedPackage.from_parent(parent, path=path) if is_package else None


class _RotatedPackage(pytest.Package):
    """Starts each worker process's collection at another file, so that it finds the rest compiled by others."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        found = list(super().collect())
        number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        begin = len(found) * number // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        return [*found[begin:], *found[:begin]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path)
    if not config.getoption("--node"):
        _leave_out(config, items, "node")
    if not config.getoption("--real"):
        _leave_out(config, items, "real")
        items.sort(key=_interleaved(items).__getitem__)
    else:
        # Files with real processes take long, and come first: at the end, one of them would run alone. Files of one
        # folder stay together, because its control plane ends after the last.
        slow = {item.path for item in items if item.get_closest_marker("real") or item.path.parent == HUBS}
        items.sort(key=lambda item: item.path not in slow)


def _leave_out(config: pytest.Config, items: list[pytest.Item], marker: str) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(marker)])
    items[:] = [item for item in items if not item.get_closest_marker(marker)]


def _interleaved(items: list[pytest.Item]) -> dict[pytest.Item, float]:
    """The place of each test, from 0 to 1. Files that start hubs wait most of their time, and the others compute: they
    take turns, so that the processes that share them have both to do, and the last quarter has no file that waits."""
    files = list(dict.fromkeys(item.path for item in items))
    waiting = [*(HUBS / name for name in LONGEST), *(path for path in files if path.parent == HUBS)]
    waiting = [path for path in dict.fromkeys(waiting) if path in files]
    others = [path for path in files if path.parent != HUBS]
    positions = {path: 0.75 * number / len(waiting) for number, path in enumerate(waiting)}
    positions |= {path: number / len(others) for number, path in enumerate(others)}
    return {item: positions[item.path] for item in items}


@pytest.fixture(params=list(Encoding), ids=lambda encoding: encoding.name.lower())
def encoding(request: pytest.FixtureRequest) -> Encoding:
    chosen: Encoding = request.param
    return chosen


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Switch the garbage collector off, so that cycles stay, like in a process that seldom collects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def loops_are_free() -> Iterator[None]:
    """Fails when something held an event loop in the test, or in its fixtures."""
    with blocking.held() as found:
        yield
    assert not found, "\n".join(found)


@pytest.fixture(autouse=True)
def nothing_left_running(request: pytest.FixtureRequest) -> None:
    """Asks for `tasks_end` where a test has a loop: set up first, it looks when the others are done."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("tasks_end")


@pytest.fixture
async def tasks_end() -> AsyncIterator[None]:
    """Fails when a task that began in the test, or in its fixtures, still runs after both."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)  # a task that was cancelled last can end
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"still running after the test: {left}"
