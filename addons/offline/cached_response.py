"""An answer of the cloud that the hub stores for an outage, and the key under which a client's request finds it."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

import orjson

from kube.bounds import reached
from kube.http.gzip_bodies import unpack_up_to
from kube.http.session import BodyTooLarge
from kube.requests.object_ref import ObjectRef
from kube.requests.query import first_values
from kube.requests.request_info import RequestInfo
from kube.requests.resource_versions import parse_version
from kube.wire.codec import ListPage, codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from kube.wire.negotiation import METADATA_KINDS, TABLE_KIND
from kube.wire.protobuf_codec import MAGIC, delimited, read_varint

MAX_CACHED = 4 * 1024 * 1024
"""Bytes of one answer on the wire. The compressed OpenAPI v2 document of a large cluster is about as large."""
MAX_UNPACKED = 4 * 1024 * 1024
"""Bytes of one decompressed object; etcd accepts 1.5 MiB. A hostile answer compresses to a thousandth of its size."""
MAX_LIST = 16 * 1024 * 1024
"""Bytes of a cached list, decompressed, with all its pages: some 5,000 pods."""
MAX_GROWING = 4
"""Incomplete lists of the node, and as many of all other callers. Each has at most MAX_CACHED bytes."""
NAMED_PARAMETERS = ("labelSelector", "fieldSelector", "shardSelector", "includeObject", "dryRun")
"""The query parameters that select the objects of a response.

All others either concern only the request (`limit`, `timeout`, `resourceVersion`), or kube-apiserver ignores them, so
they make no separate entry.
"""
CACHED_HEADERS = ("content-type", "content-encoding", "etag", "vary")
NON_OBJECT_KINDS = frozenset({"TokenRequest", "SubjectAccessReview", "Status", ""})
"""Kinds that no write of an object changes; "" stands for a document without a kind."""
NO_OBJECTS = METADATA_KINDS | {TABLE_KIND, "Status"}
"""Kinds of answers about an object that do not have all of it."""
DISCOVERY_KINDS = ("API", "APIGroup", "APIVersions", "APIResource")
HEAD = 64 * 1024
"""Bytes that suffice for the metadata of a list: a continue token has some hundred."""

_ITEMS = re.compile(rb'"(?:items|columnDefinitions|rows)"\s*:')
"""The member that follows the metadata of a list, and of a Table. A JSON string cannot contain it: its quotes would be
escaped."""
_TYPE_META, _RAW, _METADATA = b"\x0a", b"\x12", b"\x0a"
"""Protobuf field tags: the typeMeta and raw message of runtime.Unknown, and the metadata of a list."""


class ResponseKey(NamedTuple):
    """The name of a response, and its owner: "" for the node's own responses, else the digest of another identity."""

    name: str
    owner: str = ""
    about: str = ""
    """The objects in the answer, as the text of an `ObjectRef`; "" for an answer that no write of an object changes."""
    asked: bytes = b""
    """Equal for answers to one identity that differ only in their form."""

    @property
    def question(self) -> str:
        """Return the digest of `asked`. Every answer has a key, and few need a new entry."""
        return hashlib.sha256(self.asked).hexdigest()[:16] if self.asked else ""


class CachedResponse(NamedTuple):
    """An answer as a client got it, with the body on the wire; of a list of several pages, the first one."""

    headers: Mapping[str, str]
    body: bytes
    further: tuple[tuple[str, CachedResponse], ...] = ()
    """The further pages, each with the continue token that requests it."""

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes) -> CachedResponse:
        """Return the answer with the headers that the hub stores."""
        values = [(name, headers.get(name)) for name in CACHED_HEADERS]
        return cls({name: value for name, value in values if value is not None}, body)

    @classmethod
    def of_object(cls, obj: Encoded) -> CachedResponse:
        """Return an answer with an object in full form."""
        return cls({"content-type": obj.codec.content_type}, obj.body())

    @classmethod
    def load(cls, value: bytes) -> CachedResponse:
        """Parse the output of `dump`."""
        head, _, rest = value.partition(b"\n")
        headers, *further = heads if isinstance(heads := orjson.loads(head), list) else [heads]
        at = end = len(rest) - sum(size for _, _, size in further)
        pages = []
        for token, page_headers, size in further:
            pages.append((token, cls(page_headers, rest[at : at + size])))
            at += size
        return cls(headers, rest[:end], tuple(pages))

    def dump(self) -> bytes:
        headers = dict(self.headers)
        further = [(token, dict(page.headers), len(page.body)) for token, page in self.further]
        head = orjson.dumps([headers, *further] if further else headers)
        return b"".join((head, b"\n", self.body, *(page.body for _, page in self.further)))

    @property
    def size(self) -> int:
        """Bytes of all pages, on the wire."""
        return len(self.body) + sum(len(page.body) for _, page in self.further)

    def page(self, token: str) -> CachedResponse | None:
        """The page after a continue token; None if the list does not contain it."""
        return dict(self.further).get(token)

    def followed_by(self, token: str, page: CachedResponse) -> CachedResponse:
        return self._replace(further=(*self.further, (token, page)))

    def single(self) -> Encoded:
        """Decode the object in the body; ValueError if there is none, or it is larger than MAX_UNPACKED."""
        return Encoded.read(codec_for(self.encoding), unpacked(self.headers, self.body))

    def version(self) -> int:
        """The resourceVersion of the object in the body; 0 if there is none."""
        try:
            return self.single().decode().version
        except (ValueError, LookupError):
            return 0

    @property
    def has_object(self) -> bool:
        """Whether the body is a complete object: no Table, nor metadata alone."""
        try:
            return self.single().kind not in NO_OBJECTS
        except (ValueError, LookupError):
            return False

    def pages(self) -> Iterator[ListPage[bytes]]:
        """Decode the pages of a list; ValueError if one is no list of objects, or all together exceed MAX_LIST."""
        available = MAX_LIST
        for page in (self, *(page for _, page in self.further)):
            body = unpacked(page.headers, page.body, available)
            available -= len(body)
            if available < 0:
                raise ValueError(f"the list is over the limit of {MAX_LIST} bytes")
            yield codec_for(page.encoding).decode_list(body)

    def list_version(self) -> int:
        """The resourceVersion of the list, or Table, in the body; 0 if there is none."""
        try:
            return self._list_head().version
        except ValueError:
            return 0

    def next_page(self) -> str | None:
        """Return the token of the next page; "" for the last one, None if the body is no list.

        Reads only the body's first bytes.
        """
        try:
            return self._list_head().continue_token
        except ValueError:
            return None

    @property
    def encoding(self) -> Encoding:
        """The encoding of the body; ValueError if it is neither JSON nor protobuf."""
        return Encoding(self.headers.get("content-type", "").partition(";")[0].strip())

    def _list_head(self) -> ListHead:
        return list_head(self.encoding, self._head())

    def _head(self) -> bytes:
        """Decompress the first bytes of the body."""
        if self.headers.get("content-encoding") != "gzip":
            return self.body[:HEAD]
        try:
            return zlib.decompressobj(31).decompress(self.body[:HEAD], HEAD)
        except zlib.error as error:
            raise ValueError(f"the answer cannot be unpacked: {error}") from error


def newest_object(answers: Iterable[CachedResponse]) -> CachedResponse | None:
    """Return the newest of the answers that have a complete object, the first of several; None without one."""
    return max((each for each in answers if each.has_object), key=CachedResponse.version, default=None)


class GrowingLists:
    """Lists that a client is still reading page by page: joins the pages under the key of the list's answer."""

    def __init__(self) -> None:
        self._of_node: OrderedDict[ResponseKey, tuple[str, CachedResponse]] = OrderedDict()
        self._of_others: OrderedDict[ResponseKey, tuple[str, CachedResponse]] = OrderedDict()

    def add(self, key: ResponseKey, token: str, page: CachedResponse) -> CachedResponse | None:
        """Add the page that a client requested by a continue token ("" for the first page).

        Return the complete list with its last page; None before, and if earlier pages were not seen.
        """
        lists = self._of_others if key.owner else self._of_node
        expected, known = lists.get(key, ("", None)) if token else ("", None)
        if token != expected:
            return None  # of another list than the one that grows
        grown = known.followed_by(token, page) if known is not None else page
        lists.pop(key, None)
        following = page.next_page()
        if not following:
            return grown if following is not None else None
        if grown.size > MAX_CACHED:
            reached("kept answer")
            return None
        lists[key] = following, grown
        if len(lists) > MAX_GROWING:
            lists.popitem(last=False)
            reached("lists that grow")
        return None

    def forget(self, write: RequestInfo) -> None:
        """Drop lists that may hold the object of a write: further pages have the version of the first."""
        written = ObjectRef.of(write)
        if written is None:
            return
        for lists in (self._of_node, self._of_others):
            for key in list(lists):
                if (about := ObjectRef.parse(key.about)) is not None and about.meets(written):
                    del lists[key]


def unpacked(headers: Mapping[str, str], body: bytes, limit: int = MAX_UNPACKED) -> bytes:
    """Decompress the body of an answer; ValueError if that fails, or the result is larger than the limit."""
    if headers.get("content-encoding") != "gzip":
        return body
    try:
        return unpack_up_to(body, limit)
    except (BodyTooLarge, EOFError, zlib.error) as error:
        raise ValueError(f"the answer cannot be unpacked: {error}") from error


def is_too_large(headers: Mapping[str, str]) -> bool:
    """Whether the headers of an answer announce more than MAX_CACHED bytes."""
    length = headers.get("content-length", "")
    return length.isdecimal() and int(length) > MAX_CACHED


def response_key(
    identity: str, target: str, accept: str, accept_encoding: str, body: bytes = b"", about: str = ""
) -> ResponseKey:
    """Return the key of an answer: equal for requests of one identity whose answers have the same objects and form."""
    path, _, query = target.partition("?")
    path, parameters = unquote(path), sorted(first_values(query, NAMED_PARAMETERS).items()) if query else []
    request = orjson.dumps((identity, path, parameters, accept, accept_encoding))
    question = [
        each for each in parameters if each[0] != "includeObject"
    ]  # which is part of the form of a Table
    asked = orjson.dumps((identity, path, question)) if about else b""
    owner = hashlib.sha256(identity.encode()).hexdigest()[:16] if identity else ""
    name = hashlib.sha256(request + body).hexdigest()[:32]
    return ResponseKey(name, owner, about, asked)


class ListHead(NamedTuple):
    """The metadata of a list, or of a Table. `continue_token` is "" on the last page."""

    version: int
    continue_token: str


def list_head(encoding: Encoding, head: bytes) -> ListHead:
    """Parse the metadata at the beginning of a list.

    `head` has the first HEAD bytes of the body, or all of a shorter one. ValueError if they do not contain the
    metadata.
    """
    return _of_json(head) if encoding is Encoding.JSON else _of_protobuf(head)


def _of_json(head: bytes) -> ListHead:
    items = _ITEMS.search(head) if len(head) >= HEAD else None
    page = orjson.loads(head[: items.start()].rstrip().removesuffix(b",") + b"}" if items else head)
    metadata = page.get("metadata") if isinstance(page, dict) else None
    if not isinstance(metadata, dict):
        raise ValueError("the body does not begin as a list")
    version = parse_version(str(metadata.get("resourceVersion") or ""))
    return ListHead(version, str(metadata.get("continue") or ""))


def _of_protobuf(head: bytes) -> ListHead:
    if not head.startswith(MAGIC):
        raise ValueError("not Kubernetes protobuf: it does not begin with k8s\\0")
    type_meta, at = _field(head, len(MAGIC), _TYPE_META)
    _, at = _length(head, at, _RAW)
    metadata, _ = _field(head, at, _METADATA)
    envelope = MAGIC + delimited(_TYPE_META, type_meta) + delimited(_RAW, delimited(_METADATA, metadata))
    page = codec_for(Encoding.PROTOBUF).decode_list(envelope)
    return ListHead(page.version, page.continue_token)


def _field(head: bytes, at: int, tag: bytes) -> tuple[bytes, int]:
    """Return the content of a length-delimited field, and the position of the next field."""
    length, begin = _length(head, at, tag)
    if begin + length > len(head):
        raise ValueError("the metadata of the list ends early")
    return head[begin : begin + length], begin + length


def _length(head: bytes, at: int, tag: bytes) -> tuple[int, int]:
    """Return the length of a field, and the position of its content."""
    if not head.startswith(tag, at):
        raise ValueError("the body does not begin as a list")
    return read_varint(head, at + len(tag))


def about_of(answer: CachedResponse) -> str | None:
    """Return the objects in an answer that an earlier release cached, as the text of an `ObjectRef`; "" for none.

    None if unknown: that release did not store it.
    """
    try:
        codec = codec_for(answer.encoding)
    except ValueError:
        return ""  # of neither encoding, as OpenAPI is
    try:
        api_version, kind, raw = codec.decode_single(unpacked(answer.headers, answer.body))
        if kind in NON_OBJECT_KINDS or kind.removesuffix("List").removesuffix("Discovery") in DISCOVERY_KINDS:
            return ""
        group = api_version.rpartition("/")[0]
        if group == "meta.k8s.io":
            return None
        if kind.endswith("List"):
            return ObjectRef(group, resource_of(kind.removesuffix("List"))).text
        peek = codec.peek(raw)
    except ValueError:
        return "" if answer.encoding is Encoding.JSON and b'"kind"' not in answer.body[:1024] else None
    return ObjectRef(group, resource_of(kind), peek.namespace, peek.name).text if peek.name else None


def resource_of(kind: str) -> str:
    """Return the resource of a kind, with Kubernetes' plural if no other is given."""
    name = kind.lower()
    if name.endswith("endpoints"):
        return name
    if name.endswith(("s", "x", "ch", "sh")):
        return f"{name}es"
    return f"{name[:-1]}ies" if name.endswith("y") and name[-2:-1] not in "aeiou" else f"{name}s"
