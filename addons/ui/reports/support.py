"""The report `support`: one archive of all that helps to find a fault, without secrets and tokens."""

from __future__ import annotations

import gzip
import io
import os
import platform
import tarfile
import time
from importlib import metadata

import orjson

from addons.telemetry import metrics
from addons.ui.reports import components, copies, journal, rules, status
from addons.ui.reports.running_hub import RunningHub

DISTRIBUTIONS = (
    "edgehub",
    "mitmproxy",
    "aiohttp",
    "h2",
    "diskcache",
    "orjson",
    "protobuf",
    "prometheus-client",
)


def files(hub: RunningHub) -> dict[str, bytes]:
    """By name. No report holds an object's content: names, versions, rules, counts, and the last lines of the log."""
    reports = {
        "status": status.status(hub),
        "components": components.components(hub),
        "sources": copies.sources(hub),
        "views": copies.views(hub),
        "watchers": copies.watchers(hub),
        "rules": rules.rules(hub),
        "journal": journal.journal(hub),
        "versions": _versions(),
    }
    found = {f"{name}.json": orjson.dumps(each, option=orjson.OPT_INDENT_2) for name, each in reports.items()}
    return found | {
        "metrics.txt": metrics.exposition(),
        "log.txt": "\n".join((*hub.log.lines, "")).encode("utf-8", "replace"),
    }


def archive(found: dict[str, bytes]) -> bytes:
    """A compressed tar of files that only their owner may read."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in found.items():
            member = tarfile.TarInfo(f"edgehub-support/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), compresslevel=6)


def _versions() -> dict[str, str]:
    system = os.uname()  # `platform` would start a process
    found = {
        "python": platform.python_version(),
        "system": " ".join((system.sysname, system.release, system.machine)),
    }
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found
