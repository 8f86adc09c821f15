"""Continue tokens, which name where the next page of a list begins, as a kube-apiserver writes them (apiserver,
pkg/storage/continue.go).

The hub's tokens are the cloud's, so each of them refuses a list that the other began in the words of a kube-apiserver.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

import orjson

from kube.requests.quoting import quoted

LATEST = -1
"""In place of a version: continue with the newest state, although the list began with another one."""
_FORMAT = "meta.k8s.io/v1"


class ContinueToken(NamedTuple):
    """The list's version, and the key, within the request's namespace, after which its next page begins."""

    version: int
    start: str

    def encode(self) -> str:
        """The token as in a list's metadata."""
        text = orjson.dumps({"v": _FORMAT, "rv": self.version, "start": self.start})
        return urlsafe_b64encode(text).decode().rstrip("=")


def parse_continue(token: str) -> ContinueToken:
    """The content of a token. ValueError in a kube-apiserver's words, but not in those of Go's JSON and base64."""
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
    """A key as people read it, and as the end of an object's key in etcd, by which kube-apiserver orders and continues
    lists."""
    namespace, name = key
    return f"{namespace}/{name}" if namespace else name
