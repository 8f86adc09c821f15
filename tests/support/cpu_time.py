"""Measures a call's CPU time, for tests that costs grow linearly with the input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def own_seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of this thread for a call, without garbage collection of earlier tests' objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        began = time.thread_time()
        call()
        return time.thread_time() - began
    finally:
        if enabled:
            gc.enable()
