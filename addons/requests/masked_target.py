"""A request's target as people may see it."""

from __future__ import annotations

import re

_TOKEN_IN_QUERY = re.compile(rb"(?<=[?&])(access_token|token)=[^&#]+", re.IGNORECASE)


def masked(target: bytes) -> bytes:
    """The target without the tokens in its query."""
    return _TOKEN_IN_QUERY.sub(rb"\1=hidden", target)
