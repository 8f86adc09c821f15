"""Continue tokens, which hold the position of a list's next page, as kube-apiserver writes them (apiserver,
pkg/storage/continue.go).

The hub writes the same form, so hub and cloud refuse each other's outdated tokens as kube-apiserver does.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

import orjson

from kube.requests.quoting import quoted

LATEST = -1
"""A value instead of a version: continue with the newest state, although the list began with another version."""
_FORMAT = "meta.k8s.io/v1"


class ContinueToken(NamedTuple):
    """The list's version, and the key, within the request's namespace, after which its next page begins."""

    version: int
    start: str

    def encode(self) -> str:
        """Encode the token for a list's metadata."""
        text = orjson.dumps({"v": _FORMAT, "rv": self.version, "start": self.start})
        return urlsafe_b64encode(text).decode().rstrip("=")


def parse_continue(token: str) -> ContinueToken:
    """Parse a token. ValueError with kube-apiserver's message, except for Go's JSON and base64 errors."""
    try:
        fields = orjson.loads(urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4)))
    except (binascii.Error, ValueError) as error:
        raise _invalid(f": {error}") from None
    if not isinstance(fields, dict) or fields.get("v") != _FORMAT:
        version = fields.get("v", "") if isinstance(fields, dict) else ""
        raise _invalid(f": server does not recognize this encoded version {version}")
    version, start = fields.get("rv", 0), fields.get("start", "")
    if not isinstance(version, int) or not isinstance(start, str):
        raise _invalid("")
    if not version:
        raise _invalid(f": incorrect encoded start resourceVersion (version {_FORMAT})")
    if not start:
        raise _invalid(f": encoded start key empty (version {_FORMAT})")
    if not {"", ".", ".."}.isdisjoint(start.removeprefix("/").split("/")):
        raise _invalid(f": {quoted(start)}")
    return ContinueToken(version, start.removeprefix("/"))


def _invalid(why: str) -> ValueError:
    return ValueError(f"invalid continue token: continue key is not valid{why}")


def key_text(key: tuple[str, str]) -> str:
    """A key as text, for people and as the end of an object's key in etcd, by which kube-apiserver orders and
    continues lists."""
    namespace, name = key
    return f"{namespace}/{name}" if namespace else name
