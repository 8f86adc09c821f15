"""A copy is loaded completely or not at all: its objects, and the row with their number."""

from __future__ import annotations

from kube.disk.copy_rows import COUNT, dropped_copy, read_copy
from kube.disk.database import Disk, open_cache
from tests.kube.support.copied import change, full_copy, raws


def test_a_list_and_its_changes_are_loaded_after_a_restart(disk: Disk) -> None:
    disk.write(full_copy("s", {"version": 1}, {("a", "1"): b"x", ("a", "2"): b"y"}))
    disk.write(change(2, {("", "3"): b"z", ("a", "1"): None}, 2))
    disk.close()
    disk.open()
    read = read_copy(disk, "s")
    assert read is not None
    assert read[0] == {"version": 2, COUNT: 2}
    assert raws(disk) == [b"y", b"z"]


def test_a_change_without_a_base_makes_no_copy(disk: Disk) -> None:
    disk.write(change(2, {("a", "1"): b"x"}, 2))
    assert read_copy(disk, "s") is None


def test_a_dropped_source_leaves_no_rows(disk: Disk) -> None:
    for name in ("s", "t"):
        disk.write(full_copy(name, {"version": 1}, {("a", "1"): name.encode()}))
    disk.write(dropped_copy("s"))
    disk.close()
    disk.open()
    assert read_copy(disk, "s") is None
    assert raws(disk, "t") == [b"t"]


def object_key(source: str, name: str) -> str:
    """Return the key of object a/name in diskcache."""
    return "\x00".join(("o", source, "a", name))


def test_an_object_under_the_key_of_another_is_not_read(disk: Disk) -> None:
    disk.write(full_copy("s", {"version": 1}, {("a", "1"): b"x", ("a", "2"): b"y"}))
    disk.write(full_copy("t", {"version": 1}, {("a", "1"): b"z"}))
    disk.close()
    with open_cache(disk.folder) as cache:
        cache.set(object_key("s", "1"), cache.get(object_key("s", "2")))
    assert read_copy(disk, "s") is None
    assert raws(disk, "t") == [b"z"]


def test_a_copy_with_a_missing_row_is_not_loaded(disk: Disk) -> None:
    disk.write(full_copy("s", {"version": 1}, {("a", "1"): b"x", ("a", "2"): b"y"}))
    disk.close()
    with open_cache(disk.folder) as cache:
        assert cache.delete(object_key("s", "1"))
    assert read_copy(disk, "s") is None
