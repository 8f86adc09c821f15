"""A work queue for controllers: each key is queued once, handled by one worker at a time, and retried with growing
delays.

The semantics are those of client-go's workqueue. A key that is added while a worker handles it is queued again
when the worker is done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

from kube.concurrency.notifier import Notifier

FIRST_RETRY = 0.005
"""Seconds to the first retry of a key, as in client-go's default limiter. Each further delay is twice as long."""
LAST_RETRY = 300.0
"""The longest delay in seconds: a third of client-go's, so that a retry follows within minutes after its cause is
removed."""


class Bucket:
    """A token bucket: `rate` tokens a second on average, at most `burst` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._at: float | None = None

    def reserve(self) -> float:
        """Take a token, before it is due if the bucket is empty. Return the seconds to wait before using it."""
        now = asyncio.get_running_loop().time()
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)


class Queue[K: Hashable]:
    """A queue of keys in the order of their first addition. It needs no bound, because each object adds at most
    one key."""

    def __init__(self) -> None:
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()
        self._working: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._notifier = Notifier()

    def __len__(self) -> int:
        """The number of keys that are ready for a worker, without delayed ones."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """True if no key is ready, delayed, or being handled."""
        return not (self._waiting or self._working or self._timers)

    def add(self, key: K) -> None:
        """Make the key ready for a worker now, even if it was delayed."""
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
        """Make the key ready in `delay` seconds, or earlier if it already has a shorter delay."""
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
        """Add the key again after a failure. Return the delay in seconds, which doubles with each failure."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # 2**64 is beyond any delay; more would overflow a float.
        delay = min(FIRST_RETRY * 2.0 ** min(failures, 64), LAST_RETRY)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Reset the key's failures after a success, so that its next failure counts as the first."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for the next key and return it. The worker must call `done` afterwards."""
        while not self._ready:
            await self._notifier.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """End a worker's handling of the key, successful or not. A key that was added meanwhile becomes ready
        again."""
        self._working.discard(key)
        if key in self._waiting:
            self._ready.append(key)
            self._notifier.notify()

    def close(self) -> None:
        """Drop all delayed keys, so that no timer outlives the queue."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
