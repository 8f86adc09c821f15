"""Measures a call's CPU time, for tests of costs that may not grow faster than the input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def own_seconds(call: Callable[[], object]) -> float:
    """The CPU time of this thread for a call, without the collection of garbage that thousands of tests leave."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        began = time.thread_time()
        call()
        return time.thread_time() - began
    finally:
        if enabled:
            gc.enable()
