"""Runs a program, even one in Go, with a later time: `later.py SECONDS PROGRAM ARGUMENT…`, on a machine of an instance.

Go programs read the time by a function that the kernel maps into each process (the vDSO), not by the C library, which
libfaketime replaces. So this program changes the function in the memory of the process, before the program's first
instruction. Its child processes see the real time.

If the program is `runc` and starts a container, the container's first process sees the later time instead. Needs root
and x86-64, and only the standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

SEIZE, CONTINUE, DETACH = 0x4206, 7, 17
TRACE_EXEC = 0x10
EXEC_EVENT = 4
WAIT_ALL = 0x40000000
"""Constants of ptrace(2) and waitpid(2)."""
FUNCTION = b"__vdso_clock_gettime"
DYNAMIC_SYMBOLS = 11
RUNC = "/usr/sbin/runc"
EXEC_TIMEOUT = 5.0
"""Seconds until a container's first process, which starts as runc, must have executed its program."""


def main(arguments: Sequence[str]) -> None:
    """Run the command line: become the program, or run runc."""
    moved, *command = arguments
    if command[0] == RUNC:
        sys.exit(start_container(int(moved), command))
    become(int(moved), command)


def become(moved: int, command: Sequence[str]) -> None:
    """Replace this process with a program whose clock is `moved` seconds ahead."""
    own = os.getpid()
    ready, tell = os.pipe()
    if os.fork() == 0:
        _follow(own, moved, tell)
        os._exit(0)
    os.read(ready, 1)
    os.execvp(command[0], [*command])  # noqa: S606 - systemd is to see the program


def _follow(pid: int, moved: int, tell: int) -> None:
    """Wait until a process has executed a program, and change its clock while it is stopped."""
    _ptrace(SEIZE, pid, TRACE_EXEC)
    os.write(tell, b".")
    while not _becomes(pid, os.waitpid(pid, WAIT_ALL)[1]):
        pass
    change_clock(pid, moved)
    _ptrace(DETACH, pid)


def _becomes(pid: int, status: int) -> bool:
    """Return whether a traced process has stopped in execve; otherwise continue it."""
    if status >> 8 == signal.SIGTRAP | EXEC_EVENT << 8:
        return True
    _ptrace(CONTINUE, pid, 0 if status >> 16 else os.WSTOPSIG(status))
    return False


def _ptrace(request: int, pid: int, data: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_long(request), ctypes.c_int(pid), ctypes.c_void_p(0), ctypes.c_void_p(data))
    if libc.ptrace(*arguments):
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")


def start_container(moved: int, command: Sequence[str]) -> int:
    """Run `runc … start ID`, and change the clock of the container's first process; return the exit status."""
    *options, _, name = command[1:]
    state = subprocess.run([RUNC, *options, "state", name], stdout=subprocess.PIPE, check=True).stdout
    pid = int(json.loads(state)["pid"])
    _ptrace(SEIZE, pid, TRACE_EXEC)
    starting = subprocess.Popen(command)
    deadline = time.monotonic() + EXEC_TIMEOUT
    while time.monotonic() < deadline:
        seen, status = os.waitpid(pid, WAIT_ALL | os.WNOHANG)
        if not seen:
            time.sleep(0.001)
        elif _becomes(pid, status):
            change_clock(pid, moved)
            _ptrace(DETACH, pid)
            break
    return starting.wait()


def change_clock(pid: int, moved: int) -> None:
    """Set the wall clock of a process `moved` seconds ahead."""
    mapped = next(
        line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if line.endswith("[vdso]")
    )
    begin, end = (int(address, 16) for address in mapped.split()[0].split("-"))
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(begin)
        function, free, code = replacement(memory.read(end - begin), moved)
        for where, written in ((free, code), (function, b"\xe9" + struct.pack("<i", free - function - 5))):
            memory.seek(begin + where)
            memory.write(written)


def replacement(mapped: bytes, moved: int) -> tuple[int, int, bytes]:
    """Return the offsets of the clock function and of free space after it, and the code to write there."""
    code = b"".join(
        (
            b"\xb8\xe4\0\0\0\x0f\x05",  # mov $228, %eax; syscall: clock_gettime
            b"\x85\xff\x75\x0d",  # test %edi, %edi; jne: a clock other than the wall clock
            b"\x48\xb9" + struct.pack("<q", moved),  # movabs
            b"\x48\x01\x0e",  # add %rcx, (%rsi): the seconds
            b"\xc3",  # ret
        )
    )
    free = len(mapped) - 64
    if any(mapped[free:]):
        raise RuntimeError("the kernel's functions leave no free space behind them")
    return _find(mapped, FUNCTION), free, code


def _find(mapped: bytes, name: bytes) -> int:
    """Return the offset of a function, by the tables of the mapped ELF file."""
    (table,) = struct.unpack_from("<Q", mapped, 0x28)
    size, count = struct.unpack_from("<HH", mapped, 0x3A)
    sections = [struct.unpack_from("<IIQQQQII", mapped, table + index * size) for index in range(count)]
    for _, kind, _, _, offset, length, link, _ in sections:
        if kind == DYNAMIC_SYMBOLS:
            names = sections[link][4]
            for each in range(offset, offset + length, 24):
                at, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", mapped, each)
                if mapped[names + at :].startswith(name + b"\0"):
                    return int(value)
    raise RuntimeError(f"the kernel maps no {name.decode()}")


if __name__ == "__main__":
    main(sys.argv[1:])
