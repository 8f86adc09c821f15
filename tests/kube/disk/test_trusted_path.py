"""Paths that another user could redirect: through a parent folder, a link, or a parent of the link's target."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kube.disk import trusted_path
from kube.disk.trusted_path import MAX_LINKS, untrusted_step

STRANGER = 12345


def gives_away() -> bool:
    """Return True if this process may give files to another user: as root, if the namespace has that user."""
    if os.geteuid() != 0:
        return False
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    return any(0 <= STRANGER - int(first) < int(count) for first, _, count in map(str.split, lines))


as_root = pytest.mark.skipif(not gives_away(), reason="only root gives files away, to a user whom it knows")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "above" / "here"
    made.mkdir(parents=True)
    made.parent.chmod(0o755)
    return made


def unchanged(path: Path) -> None:
    """Leave the path unchanged."""


def sticky(path: Path) -> None:
    path.parent.chmod(0o1777)


def open_to_all(path: Path) -> None:
    path.parent.chmod(0o757)


def open_to_a_group(path: Path) -> None:
    path.parent.chmod(0o775)
    os.chown(path.parent, -1, STRANGER)


def open_above(path: Path) -> None:
    path.parent.parent.chmod(0o777)


def owned_by_a_stranger(path: Path) -> None:
    os.chown(path.parent, STRANGER, -1)


def strangers_link(path: Path) -> None:
    """Create a link in a folder like /tmp; its owner may redirect it at any time."""
    sticky(path)
    _link(path, path.parent.parent / "target")
    os.chown(path, STRANGER, -1, follow_symlinks=False)


def link_into_an_open_folder(path: Path) -> None:
    target = path.parent / "open" / "target"
    target.parent.mkdir()
    _link(path, target)
    target.parent.chmod(0o777)


def links_through_a_strangers_folder(path: Path) -> None:
    """Create a chain of links whose middle folder is the stranger's."""
    strangers = path.parent / "strangers"
    strangers.mkdir()
    _link(path, path.parent.parent / "target")
    (strangers / "link").symlink_to(path.readlink())
    path.unlink()
    path.symlink_to(Path("strangers/../strangers") / "link")
    os.chown(strangers, STRANGER, -1)


def own_links(path: Path) -> None:
    _link(path, path.parent / "target")


def _link(path: Path, target: Path) -> None:
    path.rename(target)
    path.symlink_to(target)


@pytest.mark.parametrize("made", [unchanged, sticky, own_links])
def test_a_path_of_this_user_is_safe(path: Path, made: Callable[[Path], None]) -> None:
    made(path)
    assert untrusted_step(path) == ""


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (open_to_all, "above can be written by other users"),
        (open_above, "can be written by other users"),
        (link_into_an_open_folder, "open can be written by other users"),
        pytest.param(open_to_a_group, "above can be written by other users", marks=as_root),
        pytest.param(owned_by_a_stranger, r"above belongs to another user \(uid 12345\)", marks=as_root),
        pytest.param(strangers_link, r"here belongs to another user \(uid 12345\)", marks=as_root),
        pytest.param(
            links_through_a_strangers_folder,
            r"strangers belongs to another user \(uid 12345\)",
            marks=as_root,
        ),
    ],
)
def test_a_path_that_another_user_may_redirect_is_unsafe(
    path: Path, made: Callable[[Path], None], why: str
) -> None:
    made(path)
    with pytest.raises(AssertionError, match=why):
        assert not untrusted_step(path)


def test_the_private_group_of_a_user_is_trusted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a umask of 002 every folder is writable by the group."""
    path.parent.chmod(0o775)
    monkeypatch.setattr(trusted_path, "_is_own_group", lambda number: number == os.getegid())
    assert untrusted_step(path) == ""


def test_as_many_links_are_followed_as_by_the_kernel(path: Path) -> None:
    for number in range(MAX_LINKS + 1):
        (path.parent / f"link-{number}").symlink_to(f"link-{number - 1}" if number else path)
    assert untrusted_step(path.parent / f"link-{MAX_LINKS - 1}") == ""
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        untrusted_step(path.parent / f"link-{MAX_LINKS}")


def test_the_overflow_user_is_trusted_where_root_is_not_mapped(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an ordinary user's own user namespace / belongs to the overflow user."""
    (tmp_path / "overflow").write_text("65534\n")
    (tmp_path / "some").write_text("         0       1000          1\n")
    (tmp_path / "all").write_text("         0          0 4294967295\n")
    monkeypatch.setattr(trusted_path, "_OVERFLOW_UID", tmp_path / "overflow")
    found = []
    for name in ("some", "all"):
        monkeypatch.setattr(trusted_path, "_UID_MAP", tmp_path / name)
        about = os.stat_result((*path.stat()[:4], 65534, *path.stat()[5:]))
        found.append(trusted_path.is_trusted(about))
    assert found == [True, False]
