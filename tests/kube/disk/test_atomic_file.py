"""Reads of complete files: an irregular or too large file is an error, and never blocks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kube.disk.atomic_file import MAX_FILE, read_file
from kube.disk.copy_rows import read_copy
from kube.disk.database import Disk, DiskError
from kube.disk.marks import Marks


def test_a_file_up_to_the_bound_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(MAX_FILE))
    assert read_file(file) == bytes(MAX_FILE)
    (tmp_path / "link").symlink_to(file)
    assert len(read_file(tmp_path / "link")) == MAX_FILE


def test_a_file_beyond_the_bound_is_refused_without_reading_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    os.truncate(file, 1 << 40)
    with pytest.raises(OSError, match="larger than"):
        read_file(file)


@pytest.mark.timeout(10)
def test_a_fifo_or_folder_is_an_error_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        read_file(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a regular file"):
        Marks(tmp_path / "fifo").read()
    os.mkfifo(tmp_path / "cache.db")
    with pytest.raises(DiskError):
        read_copy(Disk(tmp_path), "services")
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none")
