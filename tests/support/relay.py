"""Passes connections on between a network namespace and the outside, through sockets that are files."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

CHUNK = 65536


def file_listener(path: Path) -> socket.socket:
    """A listener at a path, which programs of every network namespace can reach."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def connect_file(path: Path) -> socket.socket:
    """Connect to such a listener; OSError without one."""
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
    """Forward each connection of the listener, in threads of their own, until `end`.

    `pause` is the delay of each chunk in seconds.
    """
    threading.Thread(target=_accept, args=(listener, connect, pause), daemon=True).start()


def end(listener: socket.socket) -> None:
    """Accept no more connections."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
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
    with taken, contextlib.suppress(OSError), connect() as made:
        back = threading.Thread(target=_copy, args=(made, taken, pause), daemon=True)
        back.start()
        _copy(taken, made, pause)
        back.join()


def _copy(source: socket.socket, target: socket.socket, pause: Callable[[], float]) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(CHUNK):
            time.sleep(pause())
            target.sendall(chunk)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
