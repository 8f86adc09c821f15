"""A source whose store and reflector state are set by a test."""

from __future__ import annotations

from kube.concurrency.notifier import Notifier
from kube.errors import StatusError
from kube.http.client import Unreachable
from kube.reflector.list_pages import Malformed
from kube.reflector.list_watch import ListWatch
from kube.requests.request_info import ResourceType
from kube.store.store import Store


class HandReflector:
    """The public attributes of a reflector."""

    def __init__(self) -> None:
        self.refusal: StatusError | None = None
        self.error: StatusError | Unreachable | Malformed | None = None
        self.changed = Notifier()
        self.disproved = False
        self.retried = 0

    def retry_now(self) -> None:
        self.retried += 1

    def disprove(self) -> None:
        self.disproved = True

    def refuse(self, error: StatusError | None) -> None:
        """Set the cloud's definite refusal of the list, or None."""
        self.refusal = self.error = error
        self.changed.notify()


class HandSource:
    """A source for code that only reads a `Source`, or listens to it."""

    def __init__(self) -> None:
        self.store = Store()
        self.reflector = HandReflector()
        self.users = 0
        self.is_lost = False
        """True if there is neither a copy nor a cloud."""
        self.list_watch = ListWatch(ResourceType("", "v1", "of hand"))
