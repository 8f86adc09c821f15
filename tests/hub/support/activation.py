"""Starts a hub like systemd's socket unit: `… activation ADDRESS:PORT… -- COMMAND`. Opens the sockets, passes them to
the command, and restarts the command at SIGHUP; the sockets stay open meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import sys
from types import FrameType
from typing import NoReturn

FIRST = 3
ASIDE = 100
"""The first temporary file descriptor of the sockets, above all descriptors that are passed."""


def opened(address: str, number: int) -> int:
    """Open a listening socket for the command's descriptor `number`."""
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port)), backlog=1024) as made:
        return os.dup2(made.fileno(), ASIDE + number)


def start(count: int, command: list[str]) -> int:
    """Start the process of the command, with the sockets as its descriptors from 3 on."""
    process = os.fork()
    if process == 0:
        _become(count, command)
    return process


def _become(count: int, command: list[str]) -> NoReturn:
    for number in range(count):
        os.dup2(ASIDE + number, FIRST + number)
        os.close(ASIDE + number)
    variables = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(count)}
    os.execvpe(command[0], command, {**os.environ, **variables})  # noqa: S606 - a shell would be another process


def main(arguments: list[str]) -> int:
    at = arguments.index("--")
    addresses, command = arguments[:at], arguments[at + 1 :]
    for number, address in enumerate(addresses):
        opened(address, number)
    process, wanted = start(len(addresses), command), set[int]()

    def end(number: int, _: FrameType | None) -> None:
        wanted.add(number)
        os.kill(process, signal.SIGTERM)

    signal.signal(signal.SIGHUP, end)
    signal.signal(signal.SIGTERM, end)
    while True:
        _, status = os.waitpid(process, 0)
        if wanted != {signal.SIGHUP}:
            return os.waitstatus_to_exitcode(status)
        wanted.clear()
        process = start(len(addresses), command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
