"""When a token says that it expires. Read without verifying it, so it may only ever shorten a trust."""

from __future__ import annotations

import base64
import math

import orjson

from kube.bounds import reached

MAX_TOKEN = 16 * 1024
"""Characters of a token that are read; a service account's has some 1,200."""


def expiry_of(authorization: str) -> float | None:
    """The `exp` of a bearer JWT (RFC 7519, section 4.1.4), in seconds since the epoch; None for other credentials."""
    scheme, _, token = authorization.partition(" ")
    if len(token) > MAX_TOKEN:
        reached("token")
    parts = token.split(".") if len(token) <= MAX_TOKEN else []
    if scheme.lower() != "bearer" or len(parts) != 3:
        return None
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return None
    expiry = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(expiry, bool) or not isinstance(expiry, int | float) or not math.isfinite(expiry):
        return None
    return float(expiry)
