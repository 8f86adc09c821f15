"""Whether a client may resume from a version that it holds from before an edit of the rules.

A client that left before an edit holds what the old filters made of its version. Where no event has come since, the
edited rules show another state at the very same version, and a resumed watch would never send the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RulesEdit:
    """The digest of the rules, and the newest version that a client may hold from before they came into force."""

    digest: str
    version: int


class RulesEdits:
    """Follows the edits of the rules in this process, and remembers the last one of an earlier process."""

    def __init__(
        self,
        kept: RulesEdit | None = None,
        keep: Callable[[RulesEdit], None] | None = None,
        newest_copy: int = 0,
    ) -> None:
        """`kept` is the last edit that an earlier process noted, None for none; `keep` lets the next one know.

        `newest_copy` is the newest version of the copies on disk: an earlier process may have given it to a client.
        """
        self._kept = kept
        self._keep = keep
        self._newest_copy = newest_copy
        self._digest: str | None = None
        self._version = 0

    def note(self, digest: str, edited: int, given: int = 0) -> None:
        """The rules of this digest are in force since the cloud's version `edited`.

        `given` is the newest version that this process gave any client before. A client that holds `edited` and was
        not given it listed after the edit: where nothing is written, the edit's own version is what lists carry.
        """
        if digest == self._digest:
            return
        is_first, self._digest = self._digest is None, digest
        if is_first and self._kept is not None and self._kept.digest == digest:
            self._version = self._kept.version
            return
        self._version = max(self._before(edited, given, is_first=is_first), self._newest_copy)
        self._kept = RulesEdit(digest, self._version)
        if self._keep is not None:
            self._keep(self._kept)

    def _before(self, edited: int, given: int, *, is_first: bool) -> int:
        """The newest version that a client can hold from before an edit."""
        if not is_first:
            return max(edited - 1, given)
        # Before the first hub of a node, clients were given what the cloud has, and no filter hid any of it. Such a
        # node has no copies either; copies without a note are from a hub whose rules nobody knows. What an earlier
        # process gave its clients while the rules were edited, nobody knows.
        return 0 if self._kept is None else max(edited, given)

    def can_resume(self, version: int) -> bool:
        """Whether every client that holds this version was given it under the rules in force."""
        return version > self._version
