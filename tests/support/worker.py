"""A thread during a test, which acts like kubelets and other controllers."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class Worker(ABC):
    """A context manager, during which the thread works."""

    _ended: threading.Event
    _working: threading.Thread

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        self._working = threading.Thread(target=self._work, name=type(self).__name__)
        self._working.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._working.join()

    @abstractmethod
    def _work(self) -> None:
        """Work until `_ended` is set."""
