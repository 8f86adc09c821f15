"""The hub with recorded calls of named functions: `python -m tests.hub.support.traced FILE NAMES FLAGS…`."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from pathlib import Path
from types import CodeType

from addons import command


def trace(file: Path, names: list[str]) -> None:
    """Append the name of each of these functions to the file at each call."""
    named: dict[CodeType, str] = {}
    for name in names:
        function = inspect.unwrap(pkgutil.resolve_name(name))
        named[function.__code__] = name
    tool, calls = sys.monitoring.PROFILER_ID, file.open("a", buffering=1)
    sys.monitoring.use_tool_id(tool, "traced")
    sys.monitoring.register_callback(
        tool, sys.monitoring.events.PY_START, lambda code, _offset: print(named[code], file=calls)
    )
    for code in named:
        sys.monitoring.set_local_events(tool, code, sys.monitoring.events.PY_START)


if __name__ == "__main__":
    trace(Path(sys.argv[1]), sys.argv[2].split(","))
    command.main(sys.argv[3:])
