"""A test's own disk that can be filled, emptied and made read-only, like a really full or worn-out disk. It is a tmpfs
in the mount namespace of a helper process. No other process sees it, and it needs no root; it ends with the helper
process, which ends with the test's process, even after a crash."""

from __future__ import annotations

import contextlib
import errno
import subprocess
from pathlib import Path
from typing import Self

SIZE = 16 * 1024 * 1024
"""Bytes: SQLite's log alone takes 4 MB between two checkpoints."""
HOLD = 'mount -t tmpfs -o "size=$1,mode=0700" small "$2" && echo mounted && exec cat'
"""The program of the helper process: it waits for the end of its input."""


class NoNamespacesError(Exception):
    """The machine does not permit user namespaces."""


class SmallDisk:
    """A disk as a context manager. It is at `folder` for programs whose command begins with `inside`, and for no
    other."""

    def __init__(self, folder: Path, size: int = SIZE) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        command = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", HOLD, "sh", str(size))
        try:
            self._holder = subprocess.Popen(
                (*command, str(folder)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except FileNotFoundError as error:
            raise NoNamespacesError(str(error)) from error
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "mounted\n":
            _, said = self._holder.communicate()
            raise NoNamespacesError(said.strip())
        pid = str(self._holder.pid)
        self.inside = ("nsenter", "--target", pid, "--user", "--preserve-credentials", "--mount", "--")
        self.seen = Path(f"/proc/{pid}/root{folder.absolute()}")
        """The path of its files for other processes. SQLite needs another path, as it resolves links textually."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        with (self.seen / "filler").open("ab", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(64 * 1024))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free_space(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self.seen / "filler").unlink()

    def make_read_only(self) -> None:
        """Remount read-only; subprocess.CalledProcessError while a program has a file open for writing."""
        self._remount("ro")

    def make_writable(self) -> None:
        self._remount("rw")

    def _remount(self, how: str) -> None:
        command = (*self.inside, "mount", "-o", f"remount,{how}", str(self.folder))
        subprocess.run(command, check=True, capture_output=True, timeout=10)
