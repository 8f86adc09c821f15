"""Deletion markers survive a restart, also on a full disk, and mark only one row of a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube.disk.marks import MAX_MARKS, Marks, mark_of
from tests.cloud.small_disk import NoNamespacesError, SmallDisk


def test_each_write_of_markers_replaces_the_previous_ones(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "done")
    assert marks.read() == set()
    marks.prepare()
    assert marks.read() == set()
    first, second = mark_of("a", b"1"), mark_of("a", b"2")
    marks.write([first, second])
    marks.prepare()
    assert Marks(tmp_path / "done").read() == {first, second}
    marks.write([second])
    assert marks.read() == {second}
    marks.write([])
    assert marks.read() == set()


def test_markers_can_be_written_to_a_full_disk(tmp_path: Path) -> None:
    try:
        disk = SmallDisk(tmp_path / "small")
    except NoNamespacesError as error:
        pytest.skip(str(error))
    with disk:
        marks = Marks(disk.seen / "done")
        marks.prepare()
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.seen / "other").write_bytes(b"x")
        marks.write([mark_of("a", b"1")])
        assert marks.read() == {mark_of("a", b"1")}


def test_markers_are_bounded_and_the_file_does_not_grow(tmp_path: Path) -> None:
    marks = Marks(tmp_path / "done")
    marks.prepare()
    size = (tmp_path / "done").stat().st_size
    marks.write([mark_of(str(each), b"") for each in range(MAX_MARKS + 1)])
    assert len(marks.read()) == MAX_MARKS
    assert (tmp_path / "done").stat().st_size == size
