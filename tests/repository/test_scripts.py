"""The scripts: each is executable and valid bash, and passes its arguments and signals to the right program."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.repository.support.tree import ROOT, files, label, scripts

FOLDERS = {"scripts", ".ci"}
BASH = tuple(path for path in files() if path.parent.name in FOLDERS and path.suffix == "")
LIBRARY = ROOT / "scripts" / "environment"
"""A file that other scripts source, so it is not executable."""

LAUNCHERS = {
    "hub": "-P -c from edgehub import hub; hub() --node n1 a b",
    "manager": "-P -c from edgehub import manager; manager() --node n1 a b",
    "demo": "-m scripts.demonstration --node n1 a b",
    "bench": "-m scripts.benchmark.program --node n1 a b",
    "clients": "-m scripts.client_programs.program --node n1 a b",
    "conformance": "-m scripts.conformance_tests.program --node n1 a b",
    "node": "-m scripts.node_machine.program --node n1 a b",
    "test": "-m pytest -mnode --node n1 a b",
}
"""By script: its arguments for Python when it gets `--node n1 "a b"`."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of the scripts whose Python is a program that prints its arguments, folder and process."""
    copy = tmp_path / "check out"
    (copy / "scripts").mkdir(parents=True)
    for path in BASH:
        if path.parent.name == "scripts":
            (copy / "scripts" / path.name).write_text(path.read_text())
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@"\npwd\necho $$\n')
    python.chmod(0o755)
    (copy / "scripts" / "environment").write_text(
        f"root='{copy}'\nenvironment() {{ python='{python}'; echo \"sets $*\"; }}\n"
        'environment_say() { echo "says $*"; }\n'
    )
    return copy


def test_the_scripts_are_found() -> None:
    assert {"hub", "manager", "demo", "test", "check", "bench", "lock", "environment", "run"} <= {
        p.name for p in BASH
    }


@pytest.mark.parametrize("path", BASH, ids=label)
def test_each_script_is_valid_bash(path: Path) -> None:
    subprocess.run(["bash", "-n", path], check=True)


@pytest.mark.parametrize("path", BASH, ids=label)
def test_each_script_has_a_description_and_stops_at_errors(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0 if path == LIBRARY else 1].startswith("# ")
    assert "set -euo pipefail" in lines


@pytest.mark.parametrize("path", scripts(), ids=label)
def test_each_script_is_executable(path: Path) -> None:
    assert os.access(path, os.X_OK)


def test_the_library_is_not_executable() -> None:
    assert not os.access(LIBRARY, os.X_OK)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_replaces_itself_with_its_program(name: str, checkout: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(checkout / "scripts" / name)
    with subprocess.Popen(
        ["bash", link, "--node", "n1", "a b"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        output = run.stdout.read().splitlines()
    assert run.returncode == 0
    *_, arguments, folder, process = output
    assert arguments == LAUNCHERS[name]
    # The long-running program gets the signals, as it replaced the script.
    assert int(process) == run.pid
    # Arguments of hub and manager may be paths relative to the user's folder.
    assert Path(folder) == (tmp_path if name in {"hub", "manager"} else checkout)


@pytest.mark.parametrize(
    ("name", "arguments", "sets"),
    [
        ("hub", [], "hub"),
        ("manager", [], "manager"),
        ("demo", [], "hub test"),
        ("demo", ["--real"], "hub test go"),
        ("bench", [], "hub manager test go"),
        ("test", [], "hub manager test"),
        ("test", ["-k", "x", "--real"], "hub manager test go"),
    ],
)
def test_a_launcher_installs_no_more_than_it_needs(
    name: str, arguments: list[str], sets: str, checkout: Path
) -> None:
    script = str(checkout / "scripts" / name)
    output = subprocess.run(["bash", script, *arguments], check=True, capture_output=True, text=True).stdout
    assert [line.removeprefix("sets ") for line in output.splitlines() if line.startswith("sets ")] == [sets]


@pytest.mark.parametrize(
    ("arguments", "processes", "said"),
    [
        ([], "4", True),
        (["--ignore=tests/repository"], "4", True),
        (["--real"], "3", False),
        (["--real", "-mreal"], "3", False),
        (["--real", "tests/hub"], "", False),
        (["-k", "x"], "", False),
    ],
)
def test_complete_runs_are_parallel_and_the_default_one_names_the_tests_left_out(
    arguments: list[str], processes: str, said: bool, checkout: Path
) -> None:
    script = str(checkout / "scripts" / "test")
    output = subprocess.run(["bash", script, *arguments], check=True, capture_output=True, text=True).stdout
    assert re.findall(r"--numprocesses=(\d)", output) == [*processes]
    assert (output.startswith("says ") and "scripts/test --real" in output) is said
