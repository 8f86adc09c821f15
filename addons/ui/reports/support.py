"""The archive of reports for support, without secrets and tokens."""

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
from addons.ui.reports.hub_reports import REPORTS
from addons.ui.running_hub import RunningHub

IN_ARCHIVE = ("status", "components", "sources", "views", "watchers", "rules", "journal")
DISTRIBUTIONS = (
    *("edgehub", "mitmproxy", "aiohttp", "h2", "diskcache", "orjson", "protobuf", "prometheus-client"),
)


def files(hub: RunningHub) -> dict[str, bytes]:
    """Return the archive's files by name. They contain names, versions, rules, counts and log lines, but no objects."""
    reports = {**{name: REPORTS[name](hub) for name in IN_ARCHIVE}, "versions": _versions()}
    contents = {
        f"{name}.json": orjson.dumps(report, option=orjson.OPT_INDENT_2) for name, report in reports.items()
    }
    return contents | {
        "metrics.txt": metrics.exposition(),
        "log.txt": "\n".join((*hub.records.log.lines, "")).encode("utf-8", "replace"),
    }


def archive(contents: dict[str, bytes]) -> bytes:
    """Return a compressed tar archive whose files only their owner may read."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"edgehub-support/{name}")
            member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), compresslevel=6)


def _versions() -> dict[str, str]:
    system = os.uname()  # `platform` would start a subprocess
    versions = {
        "python": platform.python_version(),
        "system": " ".join((system.sysname, system.release, system.machine)),
    }
    for name in DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return versions
