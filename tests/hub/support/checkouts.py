"""The hub of an earlier version, from a commit of this repository: its files in a folder, run in this environment."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from kube.option import VERSION
from tests.hub.support.process import ROOT

RELEASED = {
    "0.1.0": "49957e5bf4a25b1976ef48128b71a57af21df8ab",
    "2026-11-27": "ea3586d4205a4816fda9015e5669349d6b3fb87e",
}
"""The last release, and the last format of the state folder in `tests/hub/state_folders`."""


def checked_out(version: str, folder: Path) -> Path:
    """Return the folder of a version's files; skip the test in a shallow clone or without git."""
    git = ["git", "-C", str(ROOT), "archive", "--format=tar", RELEASED[version]]
    try:
        made = subprocess.run([*git, "addons", "kube"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"this clone has no commit of {version}")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def with_version(version: str, folder: Path) -> Path:
    """Return a folder with this checkout's packages under another version number, which the hub reports."""
    for package in ("addons", "kube"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    option = folder / "kube" / "option.py"
    option.write_text(option.read_text().replace(f'VERSION = "{VERSION}"', f'VERSION = "{version}"'))
    return folder
