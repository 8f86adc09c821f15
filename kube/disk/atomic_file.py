"""Reads and atomically replaces a small file, such as a certificate of the state folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

MAX_FILE = 1024 * 1024
"""The most bytes of a file that is read into memory."""


def read_file(path: Path, check: Callable[[os.stat_result], None] = lambda _: None) -> bytes:
    """Return the content of a regular file of at most MAX_FILE bytes. OSError for any other file.

    Opening a FIFO would block the hub, and reading a huge file would exhaust its memory. `check` may raise to
    reject the opened file before it is read.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        check(about)
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_FILE} bytes", os.fspath(path))
    return data


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically, so that a power failure cannot leave a truncated key, which would fail each
    handshake."""
    draft = path.with_suffix(path.suffix + ".new")
    draft.unlink(missing_ok=True)
    # Exclusive creation never follows a link, which another user could have planted to redirect the key.
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
