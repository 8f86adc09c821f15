"""Forwards connections between a network namespace and the outside, through Unix sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

CHUNK = 65536

type Passed = Callable[[bytes], None]


def file_listener(path: Path) -> socket.socket:
    """Open a listener at a path, which programs in every network namespace can reach."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def connect_file(path: Path) -> socket.socket:
    """Connect to such a listener; OSError if there is none."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection


def relay(
    listener: socket.socket, connect: Callable[[], socket.socket], pause: Callable[[], float] = float
) -> None:
    """Forward each connection of the listener, in separate threads, until `end`. `pause` is the delay of each chunk in
    seconds."""
    threading.Thread(target=_accept, args=(listener, connect, pause), daemon=True).start()


def exchange(near: socket.socket, far: socket.socket, up: Passed, down: Passed) -> None:
    """Copy between two sockets until both directions have ended. `up` and `down` are called with each chunk before it
    is sent."""
    back = threading.Thread(target=copy, args=(far, near, down), daemon=True)
    back.start()
    copy(near, far, up)
    back.join()


def end(listener: socket.socket) -> None:
    """Accept no more connections."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)  # wake the thread in accept
    listener.close()


def _accept(
    listener: socket.socket, connect: Callable[[], socket.socket], pause: Callable[[], float]
) -> None:
    while True:
        try:
            taken, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_pass_on, args=(taken, connect, pause), daemon=True).start()


def _pass_on(taken: socket.socket, connect: Callable[[], socket.socket], pause: Callable[[], float]) -> None:
    def wait(_: bytes) -> None:
        time.sleep(pause())

    with taken, contextlib.suppress(OSError), connect() as made:
        exchange(taken, made, wait, wait)


def copy(source: socket.socket, target: socket.socket, passed: Passed) -> None:
    """Forward each chunk of `source` after calling `passed`, until `source` or `target` ends, and shut both down."""
    # One read of a TLS socket returns at most one record.
    with contextlib.suppress(OSError):
        while chunk := source.recv(CHUNK):
            passed(chunk)
            target.sendall(chunk)
    for each in (source, target):
        # A closed socket's number is reused by the next connection, whose bytes a thread that still reads would take.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(each, socket.SHUT_RDWR)  # TLS's own shutdown would first prevent reading
