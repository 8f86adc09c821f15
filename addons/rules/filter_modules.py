"""Loads the filters of operators' files, again when a file changes, and of installed packages."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

from addons.filters.filter import Filter
from addons.filters.plugins import FilterPlugin, in_order, plugin_of
from addons.telemetry import metrics
from kube.disk.atomic_file import read_file
from kube.disk.trusted_path import is_trusted, untrusted_step

logger = logging.getLogger(__name__)

GROUP = "edgehub.filters"
"""The group of entry points by which installed packages provide filters."""
CHECK_INTERVAL = 1.0
"""Seconds between two checks whether a file has changed."""
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

type Mark = tuple[int, ...]
"""A value that changes when a file was written or replaced; () for one that cannot be seen."""


class FilterModules:
    """The built-in filters together with those of files and packages.

    A changed file takes effect at once. While it is broken, all filters stay as they were.
    """

    def __init__(self, own: tuple[Filter, ...], files: Sequence[Path]) -> None:
        """Load all filters; ValueError, with a message for the operator, if a file or a package is unusable.

        So a hub never starts without a filter that its operator named.
        """
        self.problem = ""
        """Why the files are unusable now; "" if they are usable."""
        self._own = own
        self._files = tuple(files)
        self._installed = tuple(_installed())
        self._loaded = self._marks()
        self.filters = self._load()

    @property
    def plugins(self) -> list[FilterPlugin]:
        """The filters that are not built in."""
        return [filter_ for filter_ in self.filters if isinstance(filter_, FilterPlugin)]

    async def follow(self, changed: Callable[[tuple[Filter, ...]], None]) -> None:
        """Call `changed` with all filters after each change of a file, until cancelled."""
        seen = self._loaded
        while self._files:
            await asyncio.sleep(CHECK_INTERVAL)
            before, seen = seen, await asyncio.to_thread(self._marks)
            # A file that differs from the last look may still be under way to the disk.
            if seen != before or seen == self._loaded:
                continue
            self._loaded = seen
            try:
                self.filters = await asyncio.to_thread(self._load)
            except ValueError as error:
                self._report(str(error))
                continue
            self._report("")
            logger.info("filters of %s are in force", ", ".join(map(str, self._files)))
            changed(self.filters)

    def _report(self, problem: str) -> None:
        self.problem = problem
        metrics.FILTER_MODULES_BROKEN.set(bool(problem))
        if problem:
            logger.error("hub_filter_module %s; the previous filters stay active", problem)

    def _load(self) -> tuple[Filter, ...]:
        loaded = [plugin for file in self._files for plugin in load_file(file)]
        return in_order(self._own, (*self._installed, *loaded))

    def _marks(self) -> tuple[Mark, ...]:
        return tuple(map(_mark, self._files))


def _mark(file: Path) -> Mark:
    try:
        status = file.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode, status.st_uid)


def load_file(file: Path) -> tuple[FilterPlugin, ...]:
    """Return the filters in a file's `FILTERS`; ValueError, with a message for its author, if the file is unusable."""
    text = _read(file)
    digest = hashlib.sha256(text).hexdigest()
    module = ModuleType(f"edgehub_filters_{digest[:16]}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    try:
        exec(compile(text, file, "exec"), module.__dict__)  # noqa: S102 - the operator's own code, as an addon's is
    except (Exception, SystemExit) as error:
        raise ValueError(f"{file}: {type(error).__name__}: {error}") from error
    finally:
        del sys.modules[module.__name__]
    return tuple(_filters(getattr(module, "FILTERS", None), digest, str(file)))


def _read(file: Path) -> bytes:
    """Read the file, whose code runs with the hub's rights; ValueError if another user could have written it."""
    try:
        return read_file(file, partial(_check_owner, file))
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from None


def _check_owner(file: Path, opened: os.stat_result) -> None:
    """Raise ValueError if users other than root and the hub's may write to the file, or replace it."""
    fault = untrusted_step(file)
    if not is_trusted(opened):
        fault = f"{file} belongs to another user (uid {opened.st_uid})"
    elif opened.st_mode & WRITABLE_BY_OTHERS:
        fault = f"{file} can be written by other users"
    if fault:
        raise ValueError(
            f"{file}: {fault}, whose code the hub would run; read the file, then "
            "let the hub's user alone write there"
        )


def are_installed() -> bool:
    """Whether a package provides filters. Loading importlib.metadata to ask takes a twentieth of a hub's start."""
    heading = f"[{GROUP}]".encode()
    files = (file for folder in sys.path for file in Path(folder).glob("*.*-info/entry_points.txt"))
    return any(heading in file.read_bytes() for file in files)


def _installed() -> Iterator[FilterPlugin]:
    """Return the filters of installed packages. A package's version identifies its code."""
    if not are_installed():
        return
    from importlib import metadata  # noqa: PLC0415 - as above

    for point in metadata.entry_points(group=GROUP):
        of = f"{point.dist.name} {point.dist.version}" if point.dist is not None else ""
        where = f"entry point {point.name} of {of or 'a package'}"
        try:
            loaded = point.load()
        except (Exception, SystemExit) as error:
            raise ValueError(f"{where}: {type(error).__name__}: {error}") from error
        yield from _filters(loaded, f"{of} {point.value}", where)


def _filters(loaded: object, digest: str, where: str) -> Iterator[FilterPlugin]:
    if not isinstance(loaded, tuple) or not loaded:
        raise ValueError(f"{where} has no FILTERS, a tuple of filters")
    for plugin in loaded:
        try:
            yield plugin_of(plugin, digest)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
