"""The plugin that provides test clouds: the tests that only `--real` runs, and builds before the first test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cloud.fixtures import REAL_TIMEOUT
from tests.cloud.real import RealCloud

ROOT = Path(__file__).parents[2]
WITHOUT_MARK = """\
def test_uses_it_indirectly(hub_rbac):
    raise AssertionError("ran")

def test_uses_none():
    pass
"""


def run_pytest(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a separate pytest session with this project's settings."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """Write a test file with one test that needs the control plane, without a marker, and one that does not."""
    path = tmp_path / "test_sample.py"
    path.write_text(WITHOUT_MARK)
    return path


def test_tests_of_the_control_plane_are_deselected_without_real(sample: Path) -> None:
    done = run_pytest(f"--rootdir={ROOT}", "-c", "pyproject.toml", "-p", "tests.conftest", str(sample))
    assert "1 passed, 1 deselected" in done.stdout


def test_a_failing_build_stops_the_run_before_any_test(sample: Path, tmp_path: Path) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(
        '#!/bin/sh\n[ "$1" = version ] && echo go version go1.26.0 && exit\necho "no compiler" >&2; exit 1\n'
    )
    go.chmod(0o755)
    env = {"PATH": f"{go.parent}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    arguments = ("--real", f"--rootdir={ROOT}", "-c", "pyproject.toml", "-p", "tests.conftest", str(sample))
    done = run_pytest(*arguments, env=env)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no compiler" in done.stderr
    assert run_pytest("-k", "none", *arguments, env=env).returncode == pytest.ExitCode.OK


def test_a_test_of_real_processes_has_a_longer_timeout(
    request: pytest.FixtureRequest, real_cloud: RealCloud
) -> None:
    assert request.node.get_closest_marker("real")
    assert request.node.get_closest_marker("timeout").args == (REAL_TIMEOUT,)
    assert real_cloud.admin.request("GET", "/readyz").body == b"ok"
