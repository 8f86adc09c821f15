"""Checks the files of added filters: the doctor loads them like the hub, but in another process.

That process drops the privileges that the hub's unit withholds (all capabilities of root, and gaining new ones), cannot
write files, and is killed after a time limit. So a faulty file harms neither the doctor nor the node.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from addons.filters.chain import build_filters
from addons.install.checks.findings import Finding, failed, ok
from addons.rules.filter_modules import FilterModules, are_installed

LIMIT = 30.0
"""Seconds in which all files must load. The hub opens its ports only after that."""
PACKAGES_ROOT = str(Path(__file__).parents[3])
"""Folder of this program's packages, which are not installed in a checkout."""
_CHECK = "filters"
_NO_NEW_PRIVILEGES, _DROP_BOUNDING, _CAPABILITIES_V3 = 38, 24, 0x20080522
"""PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP and _LINUX_CAPABILITY_VERSION_3 from the kernel's headers."""


def check_filters(files: Sequence[Path], disabled: Sequence[str], limit: float = LIMIT) -> Finding | None:
    """Check that a hub with these files starts, and list their filters; None if no file and no package has any.

    `disabled` are the filters that the hub's options disable. Installed packages may also have filters.
    """
    for file in files:
        if not file.is_absolute():
            return failed(_CHECK, f"{file}: give the absolute path: the hub runs in another folder")
    if not files and not disabled and not are_installed():
        return None
    command = [sys.executable, "-P", "-B", "-m", __name__, *map(str, files)]
    env = {**os.environ, "PYTHONPATH": PACKAGES_ROOT}
    try:
        done = subprocess.run(  # noqa: S603 - our own
            command, capture_output=True, check=False, timeout=limit, text=True, env=env
        )
    except subprocess.TimeoutExpired:
        named = ", ".join(map(str, files)) or "the filters of installed packages"
        return failed(_CHECK, f"{named}: not loaded after {limit:g} s, for which the hub would wait")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        why = lines[-1] if lines else f"ended with status {done.returncode} as it was loaded"
        return failed(_CHECK, f"{why}; the hub does not start without a filter that it was given")
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    known = {*names, *(filter_.name for filter_ in build_filters(health=True))}
    for name in disabled:
        if name not in known:
            return failed(_CHECK, f"--disabled-filters {name}: no file and no package has such a filter")
    return ok(_CHECK, f"{', '.join(names)} can be loaded") if names else None


def main(files: Sequence[str]) -> int:
    """Load the files, and print the names of their filters as a JSON list. Return the exit status."""
    _drop_privileges()
    try:
        made = FilterModules(build_filters(health=True), [Path(file) for file in files])
    except ValueError as error:
        print(*str(error).split(), file=sys.stderr)  # the doctor reads the last line
        return 1
    print(json.dumps([plugin.name for plugin in made.plugins]), flush=True)
    # Exit without waiting for threads that a file has started.
    os._exit(0)


def _drop_privileges() -> None:
    """Drop all privileges that the hub's unit withholds, and the ability to write files."""
    libc = ctypes.CDLL(None, use_errno=True)
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        libc.prctl(_DROP_BOUNDING, capability, 0, 0, 0)  # fails if the process has no capability to drop
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    given_up = libc.capset(header, (ctypes.c_uint32 * 6)())
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or given_up:
        raise OSError(ctypes.get_errno(), "the process that loads filters cannot drop its privileges")
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
