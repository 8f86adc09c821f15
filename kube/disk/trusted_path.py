"""Checks whether another user of the machine could replace a file or a folder."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_LINKS = 40
"""The most links in one path, as in the kernel."""
_UID_MAP = Path("/proc/self/uid_map")
_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")


def untrusted_step(path: Path) -> str:
    """Explain why users other than root and this one could replace a path's target; "" if they cannot.

    Checks the folders above the path, the links in it, and the folders above their targets, but not the final
    target. In a folder with the sticky bit, such as /tmp, users can replace only their own files. OSError if a
    part of the path cannot be inspected.
    """
    steps = list(_steps(path))
    for step in steps[:-1]:
        about = step.lstat()
        if not is_trusted(about):
            return f"{step} belongs to another user (uid {about.st_uid})"
        if stat.S_ISDIR(about.st_mode) and not about.st_mode & stat.S_ISVTX and _others_may_write(about):
            return f"{step} can be written by other users"
    return ""


def is_trusted(about: os.stat_result) -> bool:
    """True if root or this user owns the file.

    In a user namespace that does not map root, the kernel shows the overflow user as the owner of root's files.
    """
    return about.st_uid in {0, os.geteuid()} or about.st_uid == _unmapped_uid()


def _steps(path: Path) -> Iterator[Path]:
    """Yield every folder and link that the kernel follows, from the root on; the final target is last."""
    at, links = Path("/"), 0
    pending = list(reversed(path.absolute().parts))
    while pending:
        part = pending.pop()
        step = Path("/") if part == "/" else at.parent if part == ".." else at / part
        yield step
        if not step.is_symlink():
            at = step
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        pending += reversed(step.readlink().parts)


def _others_may_write(about: os.stat_result) -> bool:
    may_group = bool(about.st_mode & stat.S_IWGRP) and not _is_own_group(about.st_gid)
    return may_group or bool(about.st_mode & stat.S_IWOTH)


def _is_own_group(number: int) -> bool:
    """True if the group is this user's own and has no other member. Then a umask of 002 gives no other user
    access."""
    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and not {*group.gr_mem} - {user.pw_name}


def _unmapped_uid() -> int | None:
    """The overflow user id, which the kernel shows for users that this user namespace does not map; None if it
    maps all."""
    try:
        maps = [[int(number) for number in line.split()] for line in _UID_MAP.read_text().splitlines()]
        overflow = int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):
        return None
    is_mapped = any(first <= overflow < first + count for first, _, count in maps)
    return None if is_mapped else overflow
