"""An assertion that code is refused with a status code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kube.errors import StatusError


@contextmanager
def refuses(code: int) -> Iterator[None]:
    """Assert that the block is refused with this code."""
    with pytest.raises(StatusError) as refused:
        yield
    assert refused.value.code == code
