"""Detects code that blocks an event loop during tests: long computations in a callback, and blocking calls. A
callback's time is its thread's CPU time, so that other load does not matter, without garbage collection, which also
collects objects of earlier tests. A thread samples whose code runs, as the test clouds share their loop with the
product, and a test may compute for any time. Blocking calls use no CPU: Python's audit events report them, for
callbacks of the loop's thread only."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

LIMIT = 1.0
"""The maximum seconds of the product's CPU in one callback. Its longest takes 0.15; a longer one would delay a node."""

SAMPLE = 0.1
"""Seconds between two samples of the running code."""

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = tuple(f"{ROOT / package}/" for package in ("kube", "addons", "controllers"))
TESTS = (f"{ROOT / 'tests'}/", f"{ROOT / 'scripts'}/")
OURS = (*PRODUCT, *TESTS)
CALLS_OTHERS = f"{ROOT / 'addons'}/proxy/hook_dispatch.py"
"""A function that also calls the hooks of mitmproxy's addons, which are not our code."""

WAITS = {
    "time.sleep": "sleeps",
    "socket.connect": "connects and waits",
    "socket.getaddrinfo": "asks for an address and waits",
    "subprocess.Popen": "starts a process",
}
"""Audit events of calls that block an event loop."""

FILES = {"open": "opens a file", "sqlite3.connect": "opens a database", "os.rename": "renames a file"}
"""Audit events of calls that the product must not make in a loop; tests may prepare files anywhere."""

ELSEWHERE = ("importlib", "linecache", "tokenize", "traceback", "asyncio.unix_events")
"""Modules that open files, or start processes, implicitly for their caller: imports, tracebacks, subprocesses."""

MAY_WAIT = {
    (f"{ROOT / 'addons'}/assembly.py", "_start"): "nobody is served before the certificate is read",
    (f"{ROOT / 'kube'}/http/kubeconfig.py", "read"): "some hundred bytes, when a credential was rotated",
    (
        f"{ROOT / 'addons'}/certificates/serving_certificate.py",
        "expiry",
    ): "some kilobytes, which each handshake reads, too",
    (f"{ROOT / 'controllers'}/manager.py", "manifest"): "a packaged file, when the cluster lacks a kind",
}
"""Functions of the product that may open files in a loop, by file and name, with the reason."""


class _State(threading.local):
    """The state of a thread: whether it runs a callback of a loop, and its time of garbage collection."""

    inside: bool = False
    collected: float = 0.0
    """Seconds of CPU for garbage collection."""
    collects_since: float = 0.0


class _Looks:
    """Counts of a callback's samples in test code and in library code."""

    __slots__ = ("for_others", "for_tests")

    def __init__(self) -> None:
        self.for_tests = self.for_others = 0


_state = _State()
_found: list[str] = []
_running: dict[int, _Looks] = {}
"""The running callback of each thread."""


@contextmanager
def held() -> Iterator[list[str]]:
    """Record the calls and callbacks that block a loop during the block, each with its location."""
    before = _found[:]
    _found.clear()
    seen: list[str] = []
    try:
        yield seen
    finally:
        seen += _found
        _found[:] = before


def install() -> None:
    """Start the detection until the process ends: an audit hook cannot be removed."""
    original = asyncio.Handle._run

    def run(handle: asyncio.Handle) -> None:
        _state.inside = True
        looks = _running[threading.get_ident()] = _Looks()
        begin, collected = time.thread_time(), _state.collected
        try:
            original(handle)
        finally:
            _state.inside = False
            _running.pop(threading.get_ident(), None)
            # A task's step is a method of the task, whose repr is more specific than the step's.
            held_by = getattr(getattr(handle, "_callback", None), "__self__", handle)
            spent = time.thread_time() - begin - (_state.collected - collected)
            if spent > LIMIT and spent * _others_share(looks, held_by) > LIMIT:
                _found.append(f"{spent:.2f} s of CPU in one callback: {held_by!r}")
            # Like in asyncio: a traceback would refer to this frame, and so to its own task.
            del handle, held_by

    gc.callbacks.append(_note_collection)
    asyncio.Handle._run = run  # type: ignore[assignment]  # the one place that every callback passes
    sys.addaudithook(_audit)
    threading.Thread(target=_look_on, name="blocking", daemon=True).start()


def _note_collection(phase: str, _info: dict[str, int]) -> None:
    if phase == "start":
        _state.collects_since = time.thread_time()
    else:
        _state.collected += time.thread_time() - _state.collects_since


def _look_on() -> None:
    """Sample whose code each callback runs: a test's, if a function of the tests is on its stack."""
    while True:
        time.sleep(SAMPLE)
        frames = sys._current_frames()
        for thread, looks in list(_running.items()):
            if any(each.f_code.co_filename.startswith(TESTS) for each in _callers(frames.get(thread))):
                looks.for_tests += 1
            else:
                looks.for_others += 1
        del frames  # their objects would live until the next sample


def _others_share(looks: _Looks, held_by: object) -> float:
    """Return the part of the callback's CPU, from 0 to 1, that no test caused."""
    total = looks.for_tests + looks.for_others
    if total:
        return looks.for_others / total
    # A long call of a C function, during which no other thread can sample.
    coroutine = held_by.get_coro() if isinstance(held_by, asyncio.Task) else None
    code = getattr(coroutine, "cr_code", None)
    return 0.0 if code is not None and code.co_filename.startswith(TESTS) else 1.0


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _state.inside and (event in WAITS or event in FILES) and _waits(event, arguments):
        _state.inside = False  # ignore calls made to describe the location
        try:
            _blame(event, sys._getframe(1))
        finally:
            _state.inside = True


def _waits(event: str, arguments: tuple[Any, ...]) -> bool:
    match event, arguments:
        case "time.sleep", (seconds, *_):
            return bool(seconds)
        case "socket.connect", (socket.socket() as connecting, *_):
            return connecting.gettimeout() != 0
        case "open", (path, *_):
            return not isinstance(path, int)  # an already open descriptor
    return True


def _blame(event: str, frame: FrameType | None) -> None:
    """Record the nearest caller in our code; for forbidden calls, also one without such a caller."""
    callers = list(_callers(frame))
    ours = next(filter(_is_ours, callers), None)
    between = callers[: callers.index(ours)] if ours is not None else callers
    if any(each.f_globals.get("__name__", "").startswith(ELSEWHERE) for each in between):
        return
    if event in FILES and any((each.f_code.co_filename, each.f_code.co_name) in MAY_WAIT for each in callers):
        return
    # Only the product's own tasks: a test may block in functions that it calls itself.
    alone = ours is not None and not any(each.f_code.co_filename.startswith(TESTS) for each in callers)
    if event in WAITS or alone:
        trace = "".join(traceback.format_stack(ours or frame, limit=3))
        _found.append(f"{(WAITS | FILES)[event]} in a loop:\n{trace}")


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(OURS) and name != CALLS_OTHERS


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames from a call outwards, up to the loop."""
    while frame is not None and frame.f_code.co_filename != __file__:
        yield frame
        frame = frame.f_back
