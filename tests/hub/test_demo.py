"""The README's first command, as a person or a script runs it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = (
    "node-1 (pool harbour): 10.1.0.1 on node-1",
    "node-2 (pool airport): 10.2.0.1 on node-2",
    "the same watch, a moment later: MODIFIED 10.1.0.1 on node-1",
    "kube-proxy's watch on node-1: MODIFIED 10.1.0.1 on node-1, 10.2.0.9 on node-1",
)


@pytest.mark.parametrize(
    "flags", [(), pytest.param(("--real",), marks=[pytest.mark.real, pytest.mark.timeout(120)])]
)
def test_the_demo_shows_what_it_says_and_ends(flags: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "demo", *flags],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    for line in SHOWN:
        assert line in done.stdout
    if flags:
        assert "kubelet: node-1 is Ready" in done.stdout
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"
