"""The state folder: made for one user and one hub, and refused where another user could have prepared it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from addons.startup.state_folder import StateFolder


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_made_for_this_user_alone(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "var" / "edgehub")
    folder.claim()
    assert mode_of(tmp_path / "var" / "edgehub") == 0o700
    assert mode_of(tmp_path / "var" / "edgehub" / "lock") == 0o600
    folder.release()


def test_one_hub_at_a_time(tmp_path: Path) -> None:
    first, second = StateFolder(tmp_path / "state"), StateFolder(tmp_path / "state")
    first.claim()
    with pytest.raises(ValueError, match=f"is in use by another hub \\(process {os.getpid()}\\)"):
        second.claim()
    first.release()
    first.release()
    second.claim()
    second.release()


def test_one_that_others_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    for mode in (0o777, 0o1777, 0o775):
        (tmp_path / "state").chmod(mode)
        with pytest.raises(
            ValueError, match="can be written by other users; see what is in it, then: chmod go-w"
        ):
            StateFolder(tmp_path / "state").claim()
        assert mode_of(tmp_path / "state") == mode, "the hub takes no folder away from others"


def test_one_in_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ValueError, match="by other users, who could put another folder in its place"):
        StateFolder(tmp_path / "open" / "state").claim()
    (tmp_path / "open").chmod(0o1777)
    folder = StateFolder(tmp_path / "open" / "other")
    folder.claim()
    folder.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
@pytest.mark.parametrize("is_link", [False, True])
def test_one_that_another_user_made_is_refused(tmp_path: Path, is_link: bool) -> None:
    path = tmp_path / "state"
    if is_link:
        (tmp_path / "own").mkdir()
        path.symlink_to(tmp_path / "own")
    else:
        path.mkdir()
    os.chown(path, 12345, 12345, follow_symlinks=False)
    with pytest.raises(ValueError, match=r"belongs to another user \(uid 12345\)"):
        StateFolder(path).claim()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_one_in_another_users_folder_is_refused(tmp_path: Path) -> None:
    """The owner of the outer folder may move the hub's folder away while the hub runs."""
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", 12345, 12345)
    with pytest.raises(
        ValueError, match=r"home belongs to another user \(uid 12345\), who could put another"
    ):
        StateFolder(tmp_path / "home" / "state").claim()


def test_a_link_to_a_folder_of_ones_own_will_do(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    folder = StateFolder(tmp_path / "state")
    folder.claim()
    assert (tmp_path / "disk" / "lock").exists()
    folder.release()


def test_a_planted_lock_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "state" / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(ValueError, match="cannot be written"):
        StateFolder(tmp_path / "state").claim()
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(
        ValueError, match="cannot be written: Not a directory; give the hub a folder of its own"
    ):
        StateFolder(tmp_path / "state").claim()


def test_no_right_is_a_mistake_and_a_broken_disk_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node needs its hub even on a broken disk. A missing right is a mistake that the operator can mend."""

    def fail(number: int) -> None:
        def mkdir(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(Path, "mkdir", mkdir)

    fail(errno.EACCES)
    with pytest.raises(ValueError, match="cannot be written: Permission denied"):
        StateFolder(tmp_path / "state").claim()
    fail(errno.EROFS)
    with pytest.raises(OSError, match="Read-only file system"):
        StateFolder(tmp_path / "state").claim()
