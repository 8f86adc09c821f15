"""The versions of each resource at which clients may hold another state than the current views show.

A client that left before an edit of the rules holds a version as the previous filters showed it. The cloud assumes that
the client has seen the objects that they hid, and never sends them. A client of an earlier process, or of a relay
before the rules filtered it, holds a state that no view of this process showed. The number alone does not reveal that.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.reflector.list_pages import Malformed

ANY_VERSION = sys.maxsize
"""Newer than every version: the number is not known yet."""


@dataclass(frozen=True, slots=True)
class RulesEdit:
    """The digest of the rules, and for each resource the newest version that a client may hold from other filters.

    `former` has for each resource the newest version that a client may hold from a previous history.
    """

    digest: str
    versions: Mapping[str, int] = field(default_factory=dict)
    former: Mapping[str, int] = field(default_factory=dict)


class IssuedVersions:
    """The newest such version of each resource, named in the form `endpointslices.discovery.k8s.io`.

    Versions are comparable within one resource only: events, or an aggregated API, may have an etcd of their own.
    """

    def __init__(
        self,
        edit: RulesEdit | None = None,
        write: Callable[[RulesEdit], None] | None = None,
        *,
        is_new: bool = True,
    ) -> None:
        """`edit` is an earlier process's record, None if there is none; `write` stores it for the next one.

        `is_new`: no earlier process gave any client a version.
        """
        self._last = edit
        self._write = write
        self._digest: str | None = None
        self._earlier: dict[str, int] = {}
        """The newest versions that an earlier process may have given, for resources whose current version in the cloud
        is known."""
        self._newest_earlier = 0 if edit is None else ANY_VERSION
        """The newest such version of all other resources."""
        self._other_rules: dict[str, int] = dict(edit.versions) if edit is not None else {}
        self._elsewhere: dict[str, int] = {}
        self._newest_elsewhere = 0 if is_new and edit is None else ANY_VERSION
        """The newest version of resources that are not in `_elsewhere`."""
        self._former = dict(edit.former) if edit is not None else {}
        self._of_cloud: dict[str, int] = {}
        """The newest versions of lists that the cloud itself gave clients of this process."""
        self._asking: dict[str, asyncio.Task[None]] = {}

    def rules_edited(self, digest: str, given: Mapping[str, int]) -> None:
        """Record that rules with this digest are in force.

        `given` has the newest version that filtered views of this process gave any client, for each resource that
        filters understand, 0 if there is none.
        """
        if digest == self._digest:
            return
        is_first, self._digest = self._digest is None, digest
        if is_first and self._last is not None and self._last.digest == digest:
            if self._former != self._last.former:
                self._save()
            return
        for resource, version in given.items():
            if newest := max(self.of_other_rules(resource), self.of_earlier(resource), version):
                self._other_rules[resource] = newest
        if not is_first or self._last is not None:
            # Before the first hub of a node, clients got the cloud's own versions, and no filter hid any object.
            self._elsewhere, self._newest_elsewhere = {}, ANY_VERSION
        self._save()

    def of_other_rules(self, resource: str) -> int:
        """Return the newest version of a resource that a client may hold from a filtered view of other rules; 0 for
        none."""
        return self._other_rules.get(resource, 0)

    def of_earlier(self, resource: str) -> int:
        """Return the newest version of a resource that an earlier process may have given a client; 0 for none."""
        return self._earlier.get(resource, self._newest_earlier)

    def of_elsewhere(self, resource: str) -> int:
        """Return the newest version that a client of a filtered view may hold from another process, or from the history
        before a restore; 0 for none."""
        return max(self._elsewhere.get(resource, self._newest_elsewhere), self.of_former(resource))

    def of_former(self, resource: str) -> int:
        """Return the newest version that a client may hold of the history before a restore of the cloud; 0 for none."""
        return self._former.get(resource, 0)

    def relayed(self, resource: str, version: int) -> None:
        """Record that the cloud itself has given a client a list at this version of a resource."""
        self._of_cloud[resource] = max(self.of_cloud(resource), version)

    def of_cloud(self, resource: str) -> int:
        """Return the newest version of such a list; 0 for none."""
        return self._of_cloud.get(resource, 0)

    def restored(self, resource: str, version: int) -> None:
        """Record that the cloud was restored from a backup, after clients got this version of a resource."""
        self._of_cloud.pop(resource, None)
        if version > self.of_former(resource):
            self._former[resource] = version
            self._save()

    def learn(self, resource: str, ask: Callable[[], Awaitable[None]]) -> None:
        """Run `ask` in the background, which calls `reached` with the cloud's version."""
        asking = self._asking.get(resource)
        if asking is None or asking.done():
            task = asyncio.create_task(_asked(ask), name=f"version of {resource}")
            self._asking[resource] = task

    def close(self) -> None:
        for task in self._asking.values():
            task.cancel()

    def reached(self, resource: str, version: int) -> None:
        """Record that a resource is at this version in the cloud now: no client got a later one before.

        After a restore from a backup the version is lower than before.
        """
        if self.of_earlier(resource) > version:
            self._earlier[resource] = version
        if self.of_elsewhere(resource) > version:
            self._elsewhere[resource] = version
        if self.of_other_rules(resource) > version:
            self._other_rules[resource] = version
            self._save()

    def _save(self) -> None:
        if self._digest is not None:
            self._last = RulesEdit(self._digest, dict(self._other_rules), dict(self._former))
            if self._write is not None:
                self._write(self._last)


async def _asked(ask: Callable[[], Awaitable[None]]) -> None:
    with contextlib.suppress(StatusError, Unreachable, Malformed):  # asked again by the next client
        await ask()
