"""Whether a client may resume from a version that it holds from before an edit of the rules.

A client that left before an edit holds what the old filters made of its version. Where no event has come since, the
edited rules show another state at the very same version, and a resumed watch would never send the difference. Only a
filtered view gives such a version: what the cloud itself gave is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RulesEdit:
    """The digest of the rules, and the newest version that a client may hold from other filters."""

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
        self.version = 0
        """The newest version that a client may hold from a filtered view of other rules."""
        self.was_edited = False
        """The rules are others than those under which clients of this node got versions before."""

    def note(self, digest: str, edited: int, given: int = 0) -> bool:
        """The rules of this digest are in force since the cloud's version `edited`. True where others were before.

        `given` is the newest version that filtered views of this process gave any client before. Lists that clients
        make after the edit carry `edited` where nothing else is written, and each must be a version to resume from.
        """
        if digest == self._digest:
            return False
        is_first, self._digest = self._digest is None, digest
        if is_first and self._kept is not None and self._kept.digest == digest:
            self.version = self._kept.version
            return False
        self.version = self._before(edited, is_first=is_first, given=given)
        is_new_node = is_first and not self.version
        self.was_edited = self.was_edited or not is_new_node
        self._kept = RulesEdit(digest, self.version)
        if self._keep is not None:
            self._keep(self._kept)
        return not is_new_node

    def _before(self, edited: int, given: int, *, is_first: bool) -> int:
        """The newest version that a client can hold from a filtered view of other rules."""
        if not is_first:
            return max(self.version, given, self._newest_copy)
        # Before the first hub of a node, clients were given what the cloud has, and no filter hid any of it. Such a
        # node has no copies either; copies without a note are from a hub whose rules nobody knows. A hub that ended
        # before the edit gave older versions than the edit's, and what it gave later is in its copies.
        return (
            self._newest_copy
            if self._kept is None
            else max(edited - 1, self._newest_copy, self._kept.version)
        )

    def restored(self, version: int) -> None:
        """The cloud was restored from a backup, and is at this version. No later one means anything any more.

        Each relayed watch would be refused until the cloud's versions have come as far as they were.
        """
        self.version, self._newest_copy = min(self.version, version), min(self._newest_copy, version)
        if self._kept is not None and self._kept.version > version:
            self._kept = RulesEdit(self._kept.digest, version)
            if self._keep is not None:
                self._keep(self._kept)

    def can_resume(self, version: int) -> bool:
        """Whether every client that holds this version was given it under the rules in force."""
        return version > self.version
