"""Rules for every test: tests that need Go run only with `--real`, tests leave no tasks, and nothing blocks an event
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

# Examples have no deadline, as times on a busy machine say nothing about the code. CI uses the same examples each time,
# so that its result depends on the commit only; other runs use new ones.
settings.register_profile(
    "edgehub", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("edgehub")

pytest_plugins = ["tests.cloud.fixtures"]

HUBS = Path(__file__).parent / "hub"
"""The folder whose tests start hub processes."""
LONGEST = ("test_borrowed_links.py", "test_uplinks.py", "test_faults_upstream.py")
"""Test modules that take a minute or two, the longest first."""

# Let pytest cache its rewritten asserts despite the environment: rewriting takes each process 8 s.
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--real", action="store_true", help="run also what needs the real control plane")
    parser.addoption("--node", action="store_true", help="run also what needs a real node, as root")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by a number: compressed text may contain the time, which must not be part of a test's name."""
    return f"{argname} of {len(val)}" if isinstance(val, bytes) and len(val) > 8 else None


def pytest_configure() -> None:
    blocking.install()
    # looptime reads the current loop in synchronous tests too; unless None was set as the loop, asyncio
    # creates one, with a warning, which is never closed.
    asyncio.set_event_loop(None)


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    is_package = "PYTEST_XDIST_WORKER" in os.environ and (path / "__init__.py").is_file()
    return _RotatedPackage.from_parent(parent, path=path) if is_package else None


class _RotatedPackage(pytest.Package):
    """Start each worker process's collection at another file, so that it finds the others already compiled."""

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
        # Files with real processes take long and run first: at the end, one of them would run alone. Files of one
        # folder stay together, as its control plane ends after the last.
        slow = {item.path for item in items if item.get_closest_marker("real") or item.path.parent == HUBS}
        items.sort(key=lambda item: item.path not in slow)


def _leave_out(config: pytest.Config, items: list[pytest.Item], marker: str) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker(marker)])
    items[:] = [item for item in items if not item.get_closest_marker(marker)]


def _interleaved(items: list[pytest.Item]) -> dict[pytest.Item, float]:
    """Return the position of each test, from 0 to 1. Files that start hubs mostly wait, others compute: alternating
    them keeps all processes busy, and the last quarter has no file that waits."""
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
    """Switch the garbage collector off, so that reference cycles stay, as in a process that seldom collects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def loops_are_free() -> Iterator[None]:
    """Fail if something blocked an event loop in the test, or in its fixtures."""
    with blocking.held() as found:
        yield
    assert not found, "\n".join(found)


@pytest.fixture(autouse=True)
def nothing_left_running(request: pytest.FixtureRequest) -> None:
    """Request `tasks_end` if a test has a loop: set up first, it runs after all others."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("tasks_end")


@pytest.fixture
async def tasks_end() -> AsyncIterator[None]:
    """Fail if a task that started in the test, or in its fixtures, still runs after both."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)  # let a task end that was cancelled last
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"still running after the test: {left}"
