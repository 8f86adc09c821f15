"""The detector finds each kind of blocking call, names its location, and ignores code that does not block."""

from __future__ import annotations

import asyncio
import colorsys
import importlib
import linecache
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from mitmproxy import http
from mitmproxy.test import tflow

from addons.certificates.tls_port_certificate import own_certificate
from addons.proxy.fail_closed import guarded
from tests.cloud.ports import LOOPBACK
from tests.support import blocking

pytest_plugins = ["pytester"]


class Addon:
    """An addon that fails; the product logs it."""

    name = "failing"

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        raise RuntimeError("broken")


def listener() -> socket.socket:
    return socket.create_server((LOOPBACK, 0))


def connect() -> None:
    with listener() as server, socket.create_connection(server.getsockname()):
        pass


def resolve() -> None:
    socket.getaddrinfo(LOOPBACK, 80)


def start() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def sleep() -> None:
    time.sleep(0.001)


def yield_processor() -> None:
    time.sleep(0)


@pytest.mark.parametrize(
    ("hold", "what"),
    [
        pytest.param(
            sleep,
            "sleeps",
            marks=pytest.mark.skipif(sys.version_info < (3, 13), reason="Python tells of it since 3.13"),
        ),
        (connect, "connects and waits"),
        (resolve, "asks for an address"),
        (start, "starts a process"),
    ],
)
def test_a_call_that_blocks_the_loop_is_found(hold: Callable[[], None], what: str) -> None:
    async def body() -> None:
        hold()

    with blocking.held() as found:
        asyncio.run(body())
    assert any(what in each for each in found), found
    assert all("test_blocking.py" in each for each in found), "the place is not told"


@pytest.mark.parametrize(
    ("whose", "found"),
    [(f"{blocking.PRODUCT[0]}x.py", True), ("a library", True), (f"{blocking.TESTS[0]}x.py", False)],
)
def test_a_long_computation_is_found_unless_it_is_a_tests_own(whose: str, found: bool) -> None:
    # Runs longer than the limit.
    compute = "while time.thread_time() < end: pass"

    async def body() -> None:
        end = time.thread_time() + blocking.LIMIT * 1.5
        code = compile(compute, whose, "exec")
        asyncio.get_running_loop().call_soon(exec, code, {"time": time, "end": end})
        await asyncio.sleep(0)

    with blocking.held() as found_blocking:
        asyncio.run(body())
    assert ["s of CPU in one callback" in each for each in found_blocking] == [True] * found


def test_files_opened_by_the_product_are_found(tmp_path: Path) -> None:
    async def body() -> None:
        asyncio.get_running_loop().call_soon(own_certificate, tmp_path, {LOOPBACK})
        await asyncio.sleep(0)

    with blocking.held() as found:
        asyncio.run(body())
    assert any(each.startswith("opens a file") and "tls_port_certificate.py" in each for each in found)
    assert any(each.startswith("renames a file") for each in found)


async def read_in_a_thread(path: Path) -> None:
    await asyncio.to_thread(sleep)
    await asyncio.to_thread(own_certificate, path, {LOOPBACK})


async def wait_well(path: Path) -> None:
    await asyncio.sleep(0.001)
    yield_processor()


async def connect_well(path: Path) -> None:
    with listener() as server:
        host, port = server.getsockname()
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        await writer.wait_closed()


async def start_well(path: Path) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await process.wait()


async def prepare_files(path: Path) -> None:
    """Open a test's own files, which is allowed."""
    (path / "x").write_text("x")
    sqlite3.connect(path / "db").close()


async def import_a_module(path: Path) -> None:
    importlib.reload(colorsys)


async def fail_in_the_product(path: Path) -> None:
    """Raise in the product: a traceback reads the sources that it quotes."""
    linecache.clearcache()
    await guarded([Addon()], "requestheaders")(tflow.tflow())


@pytest.mark.parametrize(
    "body",
    [
        read_in_a_thread,
        wait_well,
        connect_well,
        start_well,
        prepare_files,
        import_a_module,
        fail_in_the_product,
    ],
)
def test_a_call_that_does_not_block_the_loop_is_accepted(
    body: Callable[[Path], Awaitable[None]], tmp_path: Path
) -> None:
    async def run() -> None:
        await body(tmp_path)

    with blocking.held() as found:
        asyncio.run(run())
    assert found == []


def test_each_listed_exception_still_exists() -> None:
    for file, function in blocking.MAY_WAIT:
        assert f"def {function}(" in Path(file).read_text()


def test_a_test_that_blocks_its_loop_fails(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        from tests.conftest import loops_are_free
        """
    )
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makepyfile(
        """
        import asyncio, subprocess, sys

        def test_holds():
            async def body():
                subprocess.run([sys.executable, "-c", ""], check=True)
            asyncio.run(body())

        def test_holds_not():
            async def body():
                await asyncio.sleep(0.001)
            asyncio.run(body())
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*starts a process in a loop*"])
