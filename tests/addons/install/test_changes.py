"""Files are changed atomically with a backup, and restored byte for byte after any crash or foreign edit."""

from __future__ import annotations

import fcntl
import os
import resource
from pathlib import Path

import pytest

from addons.install.changes import FileChange, Ledger, below, diff, locked, read, write

FILE, OTHER, FOLDER = Path("/etc/a.conf"), Path("/etc/b.conf"), Path("/var/lib/ledger")
KUBECONFIG = """\
current-context: c
contexts: [{name: c, context: {cluster: c}}]
clusters:
- name: c
  cluster:
    server: SERVER
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/a.conf").write_bytes(b"original\r\n\xff")
    (tmp_path / "etc/a.conf").chmod(0o640)
    return tmp_path


def test_changes_are_made_and_reverted(root: Path) -> None:
    ledger = Ledger(root, FOLDER)
    ledger.settings = {"node": "n1"}
    changes = [FileChange(FILE, b"changed"), FileChange(OTHER, b"new", 0o600)]
    assert ledger.pending(changes) == changes
    ledger.apply(changes)
    assert ledger.pending(changes) == []
    assert (root / "etc/a.conf").stat().st_mode & 0o777 == 0o640, "as the original"
    assert (root / "etc/b.conf").stat().st_mode & 0o777 == 0o600
    readable = [path for path in (root / "var/lib/ledger").iterdir() if path.stat().st_mode & 0o077]
    assert not readable, "backups hold keys"
    assert (root / "var/lib/ledger").stat().st_mode & 0o777 == 0o700
    # As a later run of the program reads the ledger.
    again = Ledger(root, FOLDER)
    assert again.settings == {"node": "n1"}
    assert again.original(FILE) == b"original\r\n\xff"
    assert again.original(OTHER) is None
    assert again.restore(FILE) is None
    assert again.restore(OTHER) is None
    assert read(root / "etc/a.conf") == b"original\r\n\xff"
    assert sorted(path.name for path in root.rglob("*") if path.is_file()) == ["a.conf"]
    assert again.is_empty


def test_two_commands_exclude_each_other_before_there_is_a_ledger(root: Path) -> None:
    folder = root / "var/lib"
    folder.mkdir(parents=True)
    other = os.open(folder, os.O_RDONLY)
    try:
        with locked(root, FOLDER), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)


def test_a_recorded_change_that_was_not_made_is_reverted_without_effect(root: Path) -> None:
    """The ledger is written before the file, so a killed run may have recorded a change that it did not make."""
    ledger, noted = Ledger(root, FOLDER), root / "var/lib/ledger/ledger.json"
    ledger.apply([FileChange(OTHER, b"former")])
    before = noted.read_bytes()
    (root / "etc/.b.conf.edgehub-new").mkdir()
    with pytest.raises(OSError, match=r"b\.conf"):
        ledger.apply([FileChange(OTHER, b"new")])
    assert noted.read_bytes() != before
    Ledger(root, FOLDER).apply([FileChange(OTHER, b"former")])
    assert noted.read_bytes() == before


def is_hub(server: str) -> bool:
    return server == "http://hub"


def test_files_of_one_name_have_a_backup_each(root: Path) -> None:
    kubelet, proxy = Path("/var/lib/kubelet/kubeconfig"), Path("/var/lib/kube-proxy/kubeconfig")
    for path in (kubelet, proxy):
        (root / path.relative_to("/")).parent.mkdir(parents=True)
        (root / path.relative_to("/")).write_text(
            KUBECONFIG.replace("SERVER", f"https://of{path.parent.name}")
        )
    ledger = Ledger(root, FOLDER)
    ledger.apply([FileChange(kubelet, b"to the hub"), FileChange(proxy, b"to the hub")])
    renewed = KUBECONFIG.replace("SERVER", "https://renewed")
    (root / "var/lib/kubelet/kubeconfig").write_text(renewed)
    ledger.accept(kubelet, is_hub)
    ledger.apply([FileChange(kubelet, b"to the hub")])
    ledger.restore(kubelet)
    ledger.restore(proxy)
    assert (root / "var/lib/kubelet/kubeconfig").read_text() == renewed
    assert "https://ofkube-proxy" in (root / "var/lib/kube-proxy/kubeconfig").read_text()


def test_a_full_disk_leaves_the_file_unchanged(root: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as found:
            write(root / "etc/a.conf", b"x" * 100, 0o644, None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found.value.filename == str(root / "etc/a.conf")
    assert [path.name for path in (root / "etc").iterdir()] == ["a.conf"]
    assert read(root / "etc/a.conf") == b"original\r\n\xff"


def test_restoring_a_file_saves_foreign_edits_beside_the_original(root: Path) -> None:
    ledger = Ledger(root, FOLDER)
    ledger.apply([FileChange(FILE, b"ours")])
    (root / "etc/a.conf").write_bytes(b"theirs")
    restored = ledger.restore(FILE)
    assert restored is not None
    assert restored.read_bytes() == b"theirs"
    assert read(root / "etc/a.conf") == b"original\r\n\xff"


@pytest.mark.parametrize(("server", "accepted"), [("https://cloud", True), ("http://hub", False)])
def test_a_rewritten_kubeconfig_is_the_original_unless_it_points_at_the_hub(
    root: Path, server: str, accepted: bool
) -> None:
    ledger = Ledger(root, FOLDER)
    ledger.apply([FileChange(FILE, KUBECONFIG.replace("SERVER", "http://hub").encode())])
    ledger.accept(FILE, is_hub)
    assert ledger.original(FILE) == b"original\r\n\xff"
    written = KUBECONFIG.replace("SERVER", server).encode() + b"# anew\n"
    (root / "etc/a.conf").write_bytes(written)
    ledger.accept(FILE, is_hub)
    assert (ledger.original(FILE) == written) is accepted


def test_a_crash_before_a_change_can_be_undone(root: Path) -> None:
    ledger = Ledger(root, FOLDER)
    (root / "etc/.a.conf.edgehub-new").mkdir()  # the path of the temporary file
    with pytest.raises(OSError, match=r"."):
        ledger.apply([FileChange(FILE, b"changed")])
    assert read(root / "etc/a.conf") == b"original\r\n\xff"
    (root / "etc/.a.conf.edgehub-new").rmdir()
    Ledger(root, FOLDER).restore(FILE)
    assert read(root / "etc/a.conf") == b"original\r\n\xff"


@pytest.mark.parametrize("target", ["a.conf", "/etc/a.conf", "../etc/a.conf", "../../../../etc/a.conf"])
def test_symbolic_links_are_resolved_within_the_root(root: Path, target: str) -> None:
    (root / "etc/link").symlink_to(target)
    assert below(root, Path("/etc/link")) == (root / "etc/a.conf").resolve()


def test_a_cycle_of_symbolic_links_is_refused(root: Path) -> None:
    (root / "etc/link").symlink_to("link")
    with pytest.raises(ValueError, match="too many links"):
        below(root, Path("/etc/link"))


def test_a_diff_shows_the_changes_and_no_secret(root: Path) -> None:
    shown = diff(root, FileChange(OTHER, b"    token: secret\nserver: x"))
    assert shown.splitlines()[:2] == ["--- /etc/b.conf", "+++ /etc/b.conf"]
    assert "+server: x\n" in shown
    assert "secret" not in shown
