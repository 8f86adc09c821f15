"""The report `profile`: where the process spends its time, for some seconds, as cProfile counts it."""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats

from kube.errors import bad_request, too_many_requests

DEFAULT_SECONDS = 10
MAX_SECONDS = 60
"""Seconds of one profile, during which each call in the process costs about twice its time."""
MAX_LINES = 60
"""Functions in each of the two tables."""


class Profiles:
    """One profile at a time: Python has one profiler."""

    def __init__(self) -> None:
        self._is_busy = False

    async def take(self, seconds: str) -> str:
        """A profile of the next seconds, as two tables: by what functions cost themselves, and with what they call.

        StatusError 400 for what is no number of seconds, 429 while another profile is made.
        """
        if not seconds.isdecimal() or not 1 <= int(seconds) <= MAX_SECONDS:
            raise bad_request(f"seconds is a number from 1 to {MAX_SECONDS}")
        if self._is_busy:
            raise too_many_requests("a profile is being made", retry_after=int(seconds))
        profile = cProfile.Profile()
        self._is_busy = True
        try:
            with profile:
                await asyncio.sleep(int(seconds))
        finally:
            self._is_busy = False
        return await asyncio.to_thread(_tables, profile)


def _tables(profile: cProfile.Profile) -> str:
    text = io.StringIO()
    stats = pstats.Stats(profile, stream=text)
    for order in ("tottime", "cumulative"):
        stats.sort_stats(order).print_stats(MAX_LINES)
    return text.getvalue()
