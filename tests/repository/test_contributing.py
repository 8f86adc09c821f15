"""CONTRIBUTING.md is correct: a newcomer's filter, made from this page only, passes the tests named on it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository.support.tree import ROOT

NAMED_BEFORE = re.compile(r"`([\w/]+\.py)`:\n\n```python\n(.*?)```", re.DOTALL)
BLOCK = re.compile(r"^```(diff|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(900)  # it runs a tenth of all tests
@pytest.mark.skipif(shutil.which("git") is None, reason="git applies what the page shows as a difference")
def test_a_filter_can_be_added_by_following_the_page_only(tmp_path: Path) -> None:
    folders = ("addons", "kube", "controllers", "configmaps", "tests", "docs")
    for folder in folders:
        # Copy compiled files too, except those being written by other tests.
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.pyc.*"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    page = ROOT / "CONTRIBUTING.md"
    section = re.search(r"^## A filter\n(.*?)^## ", page.read_text(), re.DOTALL | re.MULTILINE)
    assert section is not None
    for path, text in NAMED_BEFORE.findall(section[1]):
        (tmp_path / path).write_text(text)
    # The interpreter of these tests is the page's `python`; the folder comes before the checkout on its path.
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path),
    }
    commands = []
    for kind, text in BLOCK.findall(section[1]):
        if kind == "diff":
            subprocess.run(
                ["git", "apply", "--unidiff-zero", "-"], input=text, cwd=tmp_path, text=True, check=True
            )
        else:
            commands.append(text.strip())
    policy, tests = commands
    subprocess.run(["bash", "-c", policy], cwd=tmp_path, env=environment, check=True)
    done = subprocess.run(
        [*shlex.split(tests), "--verbose", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "test_externalnames" in done.stdout
