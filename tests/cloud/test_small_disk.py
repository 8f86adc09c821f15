"""The small disk disappears with the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.polling import eventually


@pytest.mark.usefixtures("small_disk")
def test_a_small_disk_ends_with_its_owner(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from tests.cloud.small_disk import SmallDisk\n"
        "print(SmallDisk(Path(sys.argv[1])).inside[2], flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen(
        (sys.executable, "-c", script, str(tmp_path / "d")), stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    holder = int(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    eventually(lambda: not Path(f"/proc/{holder}").exists(), "the holder has ended", 10)
