"""The state folder, whose files outlive a restart. Only the hub's user can write to it, and one hub at a time uses
it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from addons.startup.folder_owner import FolderOwner, take_over
from kube.disk.trusted_path import is_trusted, untrusted_step

PATH_ERRNOS = frozenset(
    {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP, errno.ENOENT, errno.ENAMETOOLONG}
)
"""Kernel errors that mean a wrong path or owner. Any other error (full, read-only, broken) is the disk's: the hub then
starts without the folder, because the node needs its hub.
"""
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class StateFolder:
    """A lock on the state folder, from `claim` to `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = -1

    def claim(self, owner: FolderOwner) -> None:
        """Create the folder if it is missing (mode 0700), lock it, and move another owner's content aside.

        ValueError, with a text for the operator, if other users can write there, or another user or hub has the folder.
        OSError if the disk fails.
        """
        try:
            self._make()
            self._check()
            self._take_lock()
            take_over(self._path, owner)
        except OSError as error:
            if error.errno not in PATH_ERRNOS:
                raise
            raise ValueError(
                f"hub_state_dir {self._path} cannot be written: {error.strerror}; {self._cure}"
            ) from None

    def release(self) -> None:
        """Unlock the folder for another hub."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def _cure(self) -> str:
        return "give the hub a folder of its own user's"

    def _make(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._path.mkdir(mode=0o700)
        except FileExistsError:
            if not self._path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None

    def _check(self) -> None:
        """Raise ValueError unless the folder and its parents belong to root or this user, and no other user can write
        there.
        """
        for status in (self._path.lstat(), self._path.stat()):
            if not is_trusted(status):
                raise ValueError(
                    f"hub_state_dir {self._path} belongs to another user (uid {status.st_uid}), who could put "
                    f"identities and objects there; {self._cure}"
                )
        if self._path.stat().st_mode & WRITABLE_BY_OTHERS:
            raise ValueError(
                f"hub_state_dir {self._path} can be written by other users; check its files, then: "
                f"chmod go-w {self._path}"
            )
        fault = untrusted_step(self._path)
        if fault:
            raise ValueError(
                f"hub_state_dir {self._path}: {fault}, who could put another folder in its place; {self._cure}"
            )

    def _take_lock(self) -> None:
        file = self._path / "lock"
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(lock, 0)
            os.write(lock, b"%d\n" % os.getpid())
        except BlockingIOError:
            other = os.read(lock, 20).decode(errors="replace").strip()
            os.close(lock)
            raise ValueError(
                f"hub_state_dir {self._path} is in use by another hub (process {other}): stop that one, or give "
                "this one a folder of its own"
            ) from None
        except OSError:
            os.close(lock)
            raise
        self._lock = lock
