"""One answer of the cloud as the hub keeps it for an outage, and the key under which a client finds it again."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

import orjson

from addons.offline.list_heads import HEAD, continue_token
from kube.http.gzip_bodies import unpack_up_to
from kube.http.session import BodyTooLarge
from kube.requests.query import first_values
from kube.wire.codec import codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding

MAX_BODY = 4 * 1024 * 1024
"""Bytes of one answer on the wire: OpenAPI v2 of a large cluster is about as large as that, packed."""
MAX_UNPACKED = 4 * 1024 * 1024
"""Bytes of one object unpacked; etcd takes 1.5 MiB. A hostile answer packs to a thousandth."""
NAMED_PARAMETERS = ("labelSelector", "fieldSelector", "shardSelector", "includeObject", "dryRun")
"""The query parameters that change which objects an answer has.

All others either concern the request alone (`limit`, `timeout`, `resourceVersion`), or kube-apiserver ignores them:
they must not make an entry of their own.
"""
KEPT_HEADERS = ("content-type", "content-encoding", "etag", "vary")


@dataclass(frozen=True, slots=True)
class ResponseKey:
    """The name of an answer, and its owner: "" for the node's own answers, else the digest of another identity."""

    name: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """An answer that a client got, with the body on the wire."""

    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes) -> CachedResponse:
        """The answer with those of its headers that the hub keeps."""
        return cls({name: headers[name] for name in KEPT_HEADERS if name in headers}, body)

    @classmethod
    def load(cls, value: bytes) -> CachedResponse:
        """The answer that `dump` wrote."""
        head, _, body = value.partition(b"\n")
        return cls(orjson.loads(head), body)

    def dump(self) -> bytes:
        return orjson.dumps(dict(self.headers)) + b"\n" + self.body

    def single(self) -> Encoded:
        """The object in the body; ValueError where there is none, or it is over MAX_UNPACKED."""
        return Encoded.read(codec_for(self._encoding), unpacked(self.headers, self.body))

    def version(self) -> int:
        """The resourceVersion of the object in the body; 0 where there is none."""
        try:
            return self.single().decode().version
        except (ValueError, LookupError):
            return 0

    def is_whole(self) -> bool:
        """Whether the body is a list, or a Table, that no further page follows. Reads its first bytes alone."""
        try:
            return not continue_token(self._encoding, self._head())
        except ValueError:
            return False

    @property
    def _encoding(self) -> Encoding:
        return Encoding(self.headers.get("content-type", "").partition(";")[0].strip())

    def _head(self) -> bytes:
        """The first bytes of the body, unpacked."""
        if self.headers.get("content-encoding") != "gzip":
            return self.body[:HEAD]
        try:
            return zlib.decompressobj(31).decompress(self.body[:HEAD], HEAD)
        except zlib.error as error:
            raise ValueError(f"the answer cannot be unpacked: {error}") from error


def unpacked(headers: Mapping[str, str], body: bytes) -> bytes:
    """The body of an answer that holds one object, unpacked; ValueError where it cannot be, or is over MAX_UNPACKED."""
    if headers.get("content-encoding") != "gzip":
        return body
    try:
        return unpack_up_to(body, MAX_UNPACKED)
    except (BodyTooLarge, EOFError, zlib.error) as error:
        raise ValueError(f"the answer cannot be unpacked: {error}") from error


def is_too_large(headers: Mapping[str, str]) -> bool:
    """Whether the headers of an answer announce more than MAX_BODY."""
    length = headers.get("content-length", "")
    return length.isdecimal() and int(length) > MAX_BODY


def response_key(
    identity: str, target: str, accept: str, accept_encoding: str, body: bytes = b""
) -> ResponseKey:
    """The key of an answer: equal for requests of one identity whose answers have the same objects and form."""
    path, _, query = target.partition("?")
    parameters = sorted(first_values(query, NAMED_PARAMETERS).items())
    request = orjson.dumps((identity, unquote(path), parameters, accept, accept_encoding))
    owner = hashlib.sha256(identity.encode()).hexdigest()[:16] if identity else ""
    return ResponseKey(hashlib.sha256(request + body).hexdigest()[:32], owner)
