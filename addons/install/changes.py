"""Backs up each file that an installation changes, so that `uninstall` restores it byte for byte.

The ledger is a folder: the originals, and `ledger.json`, which names them. The ledger is written before each file, so
`uninstall` can restore everything after a crash between the two writes.
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
"""Suffix for a later version of a file by another program, when the original replaces it."""


SYMLINK_LIMIT = 40
"""Maximum symbolic links on the path to one file: Linux's limit."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file's new content. `path` is absolute on the node, not below the root. `mode` applies to a new file."""

    path: Path
    data: bytes
    mode: int = 0o644


class Ledger:
    """The changes below one root that have not been undone, and the settings of their installation."""

    def __init__(self, root: Path, folder: Path) -> None:
        """`folder` is the ledger's path on the node, without the root."""
        self._root = root
        self._folder = below(root, folder)
        self.settings: Json = {}
        self.is_settled = True
        """Whether the last run completed; False if it was killed."""
        self.trial: Json = {}
        """A replacement of the hub that has not completed (`addons.install.trials`); empty without one."""
        self._files: Json = {}
        """For each path: the original's state, the name of its copy ("" if the file did not exist), and the digest of
        the content written last.
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
        """Record the settings for the next changes, and that these are incomplete."""
        self.settings, self.is_settled = settings, False

    def settle(self, settings: Json) -> None:
        """Record that all steps for these settings are complete."""
        self.settings, self.is_settled = settings, True
        self.save()

    def original(self, path: Path) -> bytes | None:
        """Return a file's content before the first change; None if it did not exist."""
        entry = self._files.get(str(path))
        if entry is None:
            return self.present(path)
        return (self._folder / entry["copy"]).read_bytes() if entry["copy"] else None

    def present(self, path: Path) -> bytes | None:
        """Return a file's present content; None if it does not exist."""
        return read(below(self._root, path))

    def has_changed(self, path: Path) -> bool:
        """Whether this installation has changed a file."""
        return str(path) in self._files

    def pending(self, changes: Iterable[FileChange]) -> list[FileChange]:
        """Return the changes whose files have other content now."""
        return [change for change in changes if self.present(change.path) != change.data]

    def apply(self, changes: Iterable[FileChange]) -> None:
        """Make the changes, recording each in the ledger first. OSError if a file cannot be written.

        A file that already has its content is only recorded, if a killed run recorded other content for it.
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

        Return the path of the preserved later version if another program has changed the file; otherwise None.
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
        """Return where a path of the node is below the root. Errors as in `below`."""
        return below(self._root, path)

    def accept(self, path: Path, leads_to_hub: Callable[[str], bool]) -> None:
        """Adopt the present version of a kubeconfig as the original, if another program wrote it since.

        A version whose server `leads_to_hub` is not adopted: after `uninstall` its component would still call the hub.
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

    def remove_drafts(self) -> None:
        """Remove the temporary files that a killed process has left of the ledger and of the files that it names."""
        for path in (self._folder / "ledger.json", *(below(self._root, Path(name)) for name in self._files)):
            remove_draft(path)

    def _keep(self, path: Path, here: Path) -> Json:
        """Back up a file before its first change. Return its entry for the ledger."""
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
    """Hold an exclusive lock on a ledger, by the folder that contains it: the ledger may not exist yet. Without such a
    folder, lock nothing.

    The kernel releases the lock when the process ends, also after a crash.
    """
    try:
        held = os.open(below(root, folder).parent, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def below(root: Path, path: Path) -> Path:
    """Return where a path of the node is below another root. Links are resolved below that root and never leave it.

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
            if (links := links + 1) > SYMLINK_LIMIT:
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
    """Remove the temporary file that a killed `write` of this file has left."""
    with contextlib.suppress(OSError):
        _draft(path).unlink()


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.edgehub-new")


def write(path: Path, data: bytes, mode: int, owner: tuple[int, int] | None) -> None:
    """Write a file atomically. `owner` is preserved if this process may change owners."""
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
        error.filename = error.filename or str(path)  # an error of a full disk has no file name
        raise
    # After a power cut no later file may exist without this one: the ledger is written first.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def diff(root: Path, change: FileChange) -> str:
    """Return a change as a unified diff, without keys and tokens."""
    texts = [data.decode(errors="replace") for data in (read(below(root, change.path)) or b"", change.data)]
    before, after = (text.splitlines(keepends=True) for text in texts)
    lines = difflib.unified_diff(before, after, str(change.path), str(change.path))
    return redacted("".join(line if line.endswith("\n") else line + "\n" for line in lines), texts)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
