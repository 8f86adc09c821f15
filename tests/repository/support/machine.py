"""A stand-in for a machine: a checkout, a home, and a PATH with only the programs that a test installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.repository.support.tree import ROOT

TOOLS = (
    "awk",
    "bash",
    "cat",
    "cksum",
    "dirname",
    "env",
    "mkdir",
    "mv",
    "readlink",
    "rm",
    "sort",
    "tail",
    "tee",
)
"""All that the scripts need beside Python."""
PACKAGES = ("addons", "controllers", "kube")
"""The packages of the project."""


class Machine:
    """A machine with TOOLS and, once installed, a Python that records its calls and whose pip does nothing."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "check out"
        self.path = folder / "bin"
        self.calls = folder / "calls"
        self.home = folder / "home"
        for path in (self.root / "scripts", self.root / "requirements", self.path, self.home):
            path.mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "environment", self.root / "scripts")
        for package in PACKAGES:
            (self.root / package).mkdir()
            (self.root / package / "__init__.py").touch()
        for name in (
            "pyproject.toml",
            "requirements/hub.lock",
            "requirements/manager.lock",
            "requirements/test.lock",
            "requirements/go.lock",
        ):
            (self.root / name).write_text(f"# {name}\n")
        for tool in TOOLS:
            (self.path / tool).symlink_to(shutil.which(tool) or tool)

    def install(
        self,
        name: str,
        *,
        version: str = "(3, 13)",
        venv: bool = True,
        abi: str = "",
        pip: str = "true",
        at: Path | None = None,
    ) -> None:
        """Puts a Python on the PATH, or elsewhere: its version, whether it has venv, its ABI, what its pip does."""
        program = (at or self.path) / name
        program.parent.mkdir(parents=True, exist_ok=True)
        missing = "" if venv else "sys.modules['ensurepip'] = None\n"
        if abi:
            missing += f"__import__('sysconfig').get_config_vars()['SOABI'] = '{abi}'\n"
        program.write_text(
            f"""#!/bin/bash
            PATH={os.defpath}
            echo "{name} $*" >>"{self.calls}"
            case "$*" in
            *"-m venv"*) mkdir -p "${{@: -1}}/bin" && cp "$0" "${{@: -1}}/bin/python" ;;
            *"-m pip"*) {pip} ;;
            *"-m compileall"*) exec {sys.executable} "$@" ;;
            *) exec {sys.executable} -I -c "import sys; sys.version_info = {version}; {missing}
${{@: -1}}" ;;
            esac
            """.replace("            ", "")
        )
        program.chmod(0o755)

    def start(self, *sets: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Makes the environment with the sets; prints the interpreter found."""
        return subprocess.run(
            self.command(*sets), env=self.environ(environ), capture_output=True, text=True, check=False
        )

    def command(self, *sets: str) -> list[str]:
        """A script that wants the sets."""
        source = f". '{self.root}/scripts/environment'; environment {' '.join(sets)}; printf %s \"$python\""
        return ["bash", "-c", source]

    def environ(self, more: Mapping[str, str]) -> dict[str, str]:
        """The variables of this machine."""
        return {"PATH": str(self.path), "HOME": str(self.home), **more}

    def installed(self) -> list[str]:
        """The installations that pip was asked for since the last call: locks, and `project`."""
        calls = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        wanted = [
            call.rsplit("/", 1)[-1] if ".lock" in call else "project" for call in calls if "-m pip" in call
        ]
        return [name.removesuffix(".lock") for name in wanted]
