"""The instance of `scripts/node` that all tests of a run share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from scripts.node_machine import lifecycle
from scripts.node_machine.commands import LackError, require_machine
from scripts.node_machine.instances import ROOT, Instance, default_name
from scripts.node_machine.program import NAME_VARIABLE


@pytest.fixture(scope="session")
def instance() -> Iterator[Instance]:
    """The checkout's own: the one that is up, else one that is brought up for the tests, and ended after them."""
    own = Instance(os.environ.get(NAME_VARIABLE) or default_name(ROOT))
    try:
        require_machine()
        if own.is_up:
            yield own
            return
        lifecycle.up(own, 1)
    except LackError as error:
        pytest.fail(f"no real node: {error}", pytrace=False)
    yield own
    lifecycle.down(own)
