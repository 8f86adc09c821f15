"""The workflows in `.github/`: actionlint reports no error, and the docs have the commands that publish a release."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml

from tests.cloud.build import ACTIONLINT, ensure_binaries
from tests.repository.support.tree import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"


@pytest.mark.real
def test_actionlint_reports_no_error() -> None:
    program = ensure_binaries(recipe=ACTIONLINT)["actionlint"]
    files = sorted(map(str, WORKFLOWS.glob("*.yaml")))
    # Without linters that exist only on some machines, so that the result is the same everywhere.
    command = [str(program), "-no-color", "-shellcheck=", "-pyflakes=", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(files) >= 2


def test_the_docs_have_the_same_commands_as_the_release_workflow() -> None:
    steps = yaml.safe_load((WORKFLOWS / "release.yaml").read_text())["jobs"]["publish"]["steps"]
    runs = {step["name"]: step["run"] for step in steps if "name" in step}
    page = (ROOT / "docs" / "packages.md").read_text()
    section = page.partition("## Publishing")[2]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    # Steps whose commands are in docs/packages.md.
    by_hand = ("images", "chart", "signature of the checksums")
    assert block[1] == "".join(runs[name] for name in by_hand)
