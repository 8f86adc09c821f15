"""What was there when the hub started is looked at by no collection."""

from __future__ import annotations

import gc

from addons.heap import Heap


class Cycle:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


def test_what_lives_for_good_is_not_gone_through_again() -> None:
    there, garbage = Cycle(), Cycle()
    number = id(garbage)
    del garbage
    Heap().load(None)
    try:
        collected = gc.get_objects()
        assert not any(each is there for each in collected)
        # What was garbage already must not be kept for good.
        gc.unfreeze()
        assert not any(id(each) == number for each in gc.get_objects() if type(each) is Cycle)
    finally:
        gc.unfreeze()
