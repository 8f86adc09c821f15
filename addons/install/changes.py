"""Keeps a backup of each file that an installation changes, so that `uninstall` restores it byte for byte.

The ledger is a folder: the originals, and `ledger.json`, which names them. The ledger is written before the file. A
crash between the two writes therefore leaves nothing that `uninstall` cannot restore.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from addons.install.kubeconfigs import redacted, server_of
from kube.json_type import Json

PRESERVED = ".edgehub-changed"
"""The suffix of a later version of a file that another program wrote, when the original replaces it."""


MOST_LINKS = 40
"""Links on the path to one file, as Linux follows them."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file's new content. `path` is absolute on the node, whatever the root; a new file gets `mode`."""

    path: Path
    data: bytes
    mode: int = 0o644


class Ledger:
    """The changes below one root that have not been taken back, and the settings that they were made with."""

    def __init__(self, root: Path, folder: Path) -> None:
        """`folder` is where the ledger lies on the node, below `root`."""
        self._root = root
        self._folder = below(root, folder)
        self.settings: Json = {}
        self.is_settled = True
        """Whether the run that wrote last came to its end; a killed one did not."""
        self.trial: Json = {}
        """An upgrade that has not come to its end (`addons.install.trials`); empty where there is none."""
        self._files: Json = {}
        """By path: the original's state, the name of its copy ("" where there was none), and the last written content.
        """
        with contextlib.suppress(FileNotFoundError):
            ledger = json.loads((self._folder / "ledger.json").read_text())
            self.settings, self._files = ledger["settings"], ledger["files"]
            self.is_settled = ledger.get("settled", False)
            self.trial = ledger.get("trial", {})

    @property
    def is_empty(self) -> bool:
        return not self._files

    def begin(self, settings: Json) -> None:
        """Record the purpose of the next changes, and that they are not complete yet."""
        self.settings, self.is_settled = settings, False

    def settle(self, settings: Json) -> None:
        """Record that all steps of these settings are done."""
        self.settings, self.is_settled = settings, True
        self.save()

    def original(self, path: Path) -> bytes | None:
        """The file's content before the first change; None if it did not exist."""
        entry = self._files.get(str(path))
        if entry is None:
            return self.present(path)
        return (self._folder / entry["copy"]).read_bytes() if entry["copy"] else None

    def present(self, path: Path) -> bytes | None:
        """The file's present content; None if it does not exist."""
        return read(below(self._root, path))

    def has_changed(self, path: Path) -> bool:
        """Whether a file is another than it was."""
        return str(path) in self._files

    def pending(self, changes: Iterable[FileChange]) -> list[FileChange]:
        """The changes whose files hold something else now."""
        return [change for change in changes if self.present(change.path) != change.data]

    def apply(self, changes: Iterable[FileChange]) -> None:
        """Make the changes, each written down before it is made. OSError where a file cannot be written.

        A file that has its content already is written down where a killed run noted another content for it.
        """
        for change in changes:
            path, noted = below(self._root, change.path), self._files.get(str(change.path))
            is_made = self.present(change.path) == change.data
            if is_made and (noted is None or noted["written"] == _digest(change.data)):
                continue
            entry = noted or self._keep(change.path, path)
            entry["written"] = _digest(change.data)
            self._files[str(change.path)] = entry
            self.save()
            if is_made:
                continue
            owner = (entry["uid"], entry["gid"]) if entry["copy"] else None
            write(path, change.data, entry["mode"] if entry["copy"] else change.mode, owner)

    def restore(self, path: Path) -> Path | None:
        """Restore the original of a file.

        Return the path of a later version that another program wrote, if there is one.
        """
        entry = self._files.get(str(path))
        if entry is None:
            return None
        here = below(self._root, path)
        present = read(here)
        preserved = None
        is_known = present is None or _digest(present) == entry["written"] or present == self.original(path)
        if entry["copy"] and not is_known:
            assert present is not None
            preserved = here.with_name(here.name + PRESERVED)
            write(preserved, present, 0o600, None)
        if entry["copy"]:
            write(
                here, (self._folder / entry["copy"]).read_bytes(), entry["mode"], (entry["uid"], entry["gid"])
            )
        else:
            here.unlink(missing_ok=True)
        remove_draft(here)
        del self._files[str(path)]
        self.save()
        return preserved

    def locate(self, path: Path) -> Path:
        """Return where a path of the node is below the root; errors as `below`."""
        return below(self._root, path)

    def accept(self, path: Path, leads_to_hub: Callable[[str], bool]) -> None:
        """Take the present version of a kubeconfig as the original, where another program wrote it since.

        A version whose server `leads_to_hub` is no original: a component that read it would still be behind the hub.
        """
        entry = self._files.get(str(path))
        present = self.present(path)
        if entry is None or present is None or _digest(present) == entry["written"]:
            return
        if not leads_to_hub(server_of(present.decode(errors="replace"))):
            del self._files[str(path)]

    def save(self) -> None:
        """Write the ledger, or delete it when it is empty."""
        if not self._files:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ledger = {"settings": self.settings, "settled": self.is_settled, "files": self._files}
        if self.trial:
            ledger["trial"] = self.trial
        text = json.dumps(ledger, indent=1)
        write(self._folder / "ledger.json", text.encode(), 0o600, None)

    def _keep(self, path: Path, here: Path) -> Json:
        """Copy a file before it changes, and return the original's description."""
        data = read(here)
        if data is None:
            return {"copy": "", "mode": 0, "uid": 0, "gid": 0}
        status = here.stat()
        # By the path, since files of two folders may have one name.
        copy = f"{_digest(str(path).encode())[:16]}-{path.name}"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write(self._folder / copy, data, 0o600, None)
        return {"copy": copy, "mode": status.st_mode & 0o7777, "uid": status.st_uid, "gid": status.st_gid}


@contextlib.contextmanager
def locked(root: Path, folder: Path) -> Iterator[None]:
    """Lock a ledger against other processes; without a ledger, lock nothing.

    The kernel frees the lock at the end of the process, also after a crash.
    """
    try:
        held = os.open(below(root, folder), os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def below(root: Path, path: Path) -> Path:
    """Where a path of the node is below another root. Links count as on the node: none leads out of that root.

    ValueError for a relative path, and for links that lead in a circle.
    """
    top = reached = root.resolve()
    waiting, links = list(reversed(path.relative_to("/").parts)), 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            reached = reached.parent if reached != top else top
        elif (reached / part).is_symlink():
            target = Path((reached / part).readlink())
            if (links := links + 1) > MOST_LINKS:
                raise ValueError(f"{path}: too many links")
            reached = top if target.is_absolute() else reached
            waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        else:
            reached /= part
    return reached


def read(path: Path) -> bytes | None:
    """Read a file; None without one."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def remove_draft(path: Path) -> None:
    """Remove what a killed `write` of this file left beside it."""
    with contextlib.suppress(OSError):
        _draft(path).unlink()


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.edgehub-new")


def write(path: Path, data: bytes, mode: int, owner: tuple[int, int] | None) -> None:
    """Write a file atomically. `owner` is preserved where this process may change owners."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(path)
    draft.unlink(missing_ok=True)
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            if owner is not None and owner != (os.getuid(), os.getgid()):
                os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        error.filename = error.filename or str(path)  # a write to a full disk names no file
        raise
    # A power cut must not keep a later file and lose this one: the ledger comes before its files.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def diff(root: Path, change: FileChange) -> str:
    """The change as a unified diff, without keys and tokens."""
    texts = [data.decode(errors="replace") for data in (read(below(root, change.path)) or b"", change.data)]
    before, after = (text.splitlines(keepends=True) for text in texts)
    lines = difflib.unified_diff(before, after, str(change.path), str(change.path))
    return redacted("".join(line if line.endswith("\n") else line + "\n" for line in lines), texts)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
