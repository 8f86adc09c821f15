"""A work queue for controllers. A key is queued once, one worker at a time has it, and each retry waits longer.

The semantics are those of client-go's workqueue. A key that is added while a worker has it is queued
again when the worker is done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

from kube.concurrency.notifier import Notifier

FIRST_RETRY = 0.005
"""Seconds to the first retry of a key, as in client-go's default limiter. Each further retry waits twice as long."""
LAST_RETRY = 300.0
"""Seconds between retries at most: a third of client-go's, so that a retry follows minutes after a cause is cured."""


class Bucket:
    """A token bucket: `rate` a second in the long run, `burst` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at: float | None = None

    def reserve(self) -> float:
        """Take a token, in advance if need be. Returns the seconds to wait until it may be used."""
        now = asyncio.get_running_loop().time()
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)


class Queue[K: Hashable]:
    """Keys in the order of their first addition. The queue has no bound: there are as many keys as objects."""

    def __init__(self) -> None:
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()
        self._working: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._notifier = Notifier()

    def __len__(self) -> int:
        """Keys that wait for a worker now, without the delayed ones."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether no key waits, is delayed or is with a worker."""
        return not (self._waiting or self._working or self._timers)

    def add(self, key: K) -> None:
        """Give the key to a worker as soon as possible. This ends a delay of the key."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._working:
            self._ready.append(key)
            self._notifier.notify()

    def add_after(self, key: K, delay: float) -> None:
        """Give the key to a worker in `delay` seconds, or earlier if it was added with a shorter delay."""
        if delay <= 0:
            self.add(key)
            return
        if key in self._waiting:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(delay, self.add, key)

    def retry(self, key: K) -> float:
        """Add the key again after a failure, and return the delay in seconds: twice as long with each failure."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # 2**64 is beyond any delay; more would overflow a float.
        delay = min(FIRST_RETRY * 2.0 ** min(failures, 64), LAST_RETRY)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure counts as the first."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key. The worker calls `done` when it is through."""
        while not self._ready:
            await self._notifier.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """A worker has finished the key, successfully or not. If it was added meanwhile, it is ready again."""
        self._working.discard(key)
        if key in self._waiting:
            self._ready.append(key)
            self._notifier.notify()

    def close(self) -> None:
        """Forget all delayed keys, so that no timer outlives the queue."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
