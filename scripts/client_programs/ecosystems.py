"""The client programs of `tests/clients`, and how each is built, once per user.

Each lists and watches the Services of a namespace as its library intends, and prints a line of JSON for each event:
type, name and version.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "tests" / "clients"
JAVA = ("-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
ERROR_LINES = 30
"""Lines of a build that an error shows."""


@dataclass(frozen=True, slots=True)
class Ecosystem:
    """A client library, and how its program is built and run."""

    name: str
    folder: str
    """The folder in `tests/clients`."""
    needs: tuple[str, ...]
    """Programs that must be installed to build and run it."""
    build: tuple[tuple[str, ...], ...]
    """The commands that build it in a copy of its folder."""
    run: Callable[[Path], Sequence[str | Path]]
    """The command that runs it in that folder; its arguments are a kubeconfig and a namespace."""

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(program for program in self.needs if shutil.which(program) is None)


def _java(folder: Path) -> Sequence[str | Path]:
    return (
        "java",
        *JAVA,
        "-cp",
        f"{folder / 'target' / 'classes'}:{folder / 'target' / 'dependency'}/*",
        "Client",
    )


MAVEN = (("mvn", "--batch-mode", "--quiet", "process-classes"),)
ECOSYSTEMS = (
    Ecosystem(
        "Python",
        "python",
        (),
        (
            (sys.executable, "-m", "venv", "environment"),
            ("environment/bin/pip", "install", "--quiet", "--requirement", "requirements.txt"),
        ),
        lambda folder: (folder / "environment" / "bin" / "python", folder / "client.py"),
    ),
    Ecosystem(
        "JavaScript",
        "javascript",
        ("node", "npm"),
        (("npm", "ci", "--no-audit", "--no-fund"),),
        lambda folder: ("node", folder / "client.mjs"),
    ),
    Ecosystem("Java", "java", ("java", "javac", "mvn"), MAVEN, _java),
    Ecosystem("fabric8", "fabric8", ("java", "javac", "mvn"), MAVEN, _java),
    Ecosystem(
        "kube-rs",
        "rust",
        ("cargo",),
        (("cargo", "build"),),
        lambda folder: (folder / "target" / "debug" / "client",),
    ),
    Ecosystem(
        "client-go",
        "go",
        ("go",),
        (("go", "build", "-o", "client", "."),),
        lambda folder: (folder / "client",),
    ),
)


class BuildError(Exception):
    """A client program cannot be built; the message says why."""


def ensure_built(ecosystem: Ecosystem) -> Sequence[str | Path]:
    """Return the command of the program; build it first if needed. BuildError if that fails."""
    source = SOURCES / ecosystem.folder
    files = sorted(path for path in source.iterdir() if path.is_file())
    made_of = b"\0".join([repr(ecosystem.build).encode(), *(path.read_bytes() for path in files)])
    name = f"{ecosystem.folder}-{hashlib.sha256(made_of).hexdigest()[:16]}"
    folder = _cache() / "edgehub" / "clients" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            print(
                f"clients: building {ecosystem.name}, once per user; kept in {folder}",
                file=sys.stderr,
                flush=True,
            )
            for path in files:
                shutil.copy(path, folder)
            for command in ecosystem.build:
                _run(command, folder)
            (folder / "built").touch()
    return ecosystem.run(folder)


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-ERROR_LINES:])
        raise BuildError(f"{' '.join(command)} failed:\n{last}")


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base) if base.startswith("/") else Path.home() / ".cache"
