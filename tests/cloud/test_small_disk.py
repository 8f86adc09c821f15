"""The small disk is really full, really read-only, and gone with the process."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cloud.small_disk import SmallDisk


def test_a_full_disk_has_no_room_until_there_is_some(small_disk: SmallDisk) -> None:
    small_disk.fill()
    with (
        pytest.raises(OSError, match="No space") as full,
        (small_disk.seen / "a").open("wb", buffering=0) as file,
    ):
        file.write(b"x")
    assert full.value.errno == errno.ENOSPC
    small_disk.make_room()
    (small_disk.seen / "a").write_bytes(b"x")


def test_a_read_only_disk_is_read(small_disk: SmallDisk) -> None:
    (small_disk.seen / "a").write_bytes(b"x")
    small_disk.make_read_only()
    with pytest.raises(OSError, match="Read-only") as refused:
        (small_disk.seen / "b").touch()
    assert refused.value.errno == errno.EROFS
    assert (small_disk.seen / "a").read_bytes() == b"x"
    small_disk.make_writable()
    (small_disk.seen / "b").touch()


def test_only_who_runs_inside_sees_it(small_disk: SmallDisk) -> None:
    command = (*small_disk.inside, "touch", str(small_disk.folder / "a"))
    subprocess.run(command, check=True, timeout=10)
    assert (small_disk.seen / "a").exists()
    assert not list(small_disk.folder.iterdir())
    assert str(small_disk.folder) not in Path("/proc/mounts").read_text()


@pytest.mark.usefixtures("small_disk")
def test_it_goes_with_its_owner(tmp_path: Path) -> None:
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
    deadline = time.monotonic() + 10
    while Path(f"/proc/{holder}").exists():
        assert time.monotonic() < deadline, os.readlink(f"/proc/{holder}/exe")
        time.sleep(0.01)
