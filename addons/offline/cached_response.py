"""One answer of the cloud as the hub keeps it for an outage, and the key under which a client finds it again."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
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
from kube.wire.protobuf_codec import MAGIC, delimited, read_varint

MAX_CACHED = 4 * 1024 * 1024
"""Bytes of one answer on the wire: OpenAPI v2 of a large cluster is about as large as that, packed."""
MAX_UNPACKED = 4 * 1024 * 1024
"""Bytes of one object unpacked; etcd takes 1.5 MiB. A hostile answer packs to a thousandth."""
MAX_LIST = 16 * 1024 * 1024
"""Bytes of a cached list, uncompressed, with all its pages, that the hub reads: some 5,000 pods."""
MAX_GROWING = 4
"""Lists of the node, and as many of all other callers. Each has MAX_CACHED at most."""
NAMED_PARAMETERS = ("labelSelector", "fieldSelector", "shardSelector", "includeObject", "dryRun")
"""The query parameters that change which objects an answer has.

All others either concern the request alone (`limit`, `timeout`, `resourceVersion`), or kube-apiserver ignores them:
they must not make an entry of their own.
"""
CACHED_HEADERS = ("content-type", "content-encoding", "etag", "vary")
OF_NO_OBJECT = frozenset({"TokenRequest", "SubjectAccessReview", "Status", ""})
"""Kinds that no write of an object changes; "" is a document without a kind."""
DISCOVERY_KINDS = ("API", "APIGroup", "APIVersions", "APIResource")
HEAD = 64 * 1024
"""Bytes that hold the metadata of a list: a continue token is of some hundred."""

_ITEMS = re.compile(rb'"(?:items|columnDefinitions|rows)"\s*:')
"""The member behind the metadata of a list, and of a Table. A string cannot hold it: its quotes would be escaped."""
_TYPE_META, _RAW, _METADATA = b"\x0a", b"\x12", b"\x0a"
"""Tags: of runtime.Unknown its typeMeta and raw message, of a list its metadata."""


class ResponseKey(NamedTuple):
    """The name of an answer, and its owner: "" for the node's own answers, else the digest of another identity."""

    name: str
    owner: str = ""
    about: str = ""
    """The objects in the answer, as text of an `ObjectRef`; "" for an answer that no write of an object changes."""
    question: str = ""
    """Equal for answers to one identity that differ in their form alone."""


class CachedResponse(NamedTuple):
    """An answer that a client got, with the body on the wire: of a list of several pages, the first of them."""

    headers: Mapping[str, str]
    body: bytes
    further: tuple[tuple[str, CachedResponse], ...] = ()
    """The further pages, each with the continue token that asks for it."""

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes) -> CachedResponse:
        """The answer with those of its headers that the hub keeps."""
        values = [(name, headers.get(name)) for name in CACHED_HEADERS]
        return cls({name: value for name, value in values if value is not None}, body)

    @classmethod
    def of_object(cls, obj: Encoded) -> CachedResponse:
        """The answer with an object as it is."""
        return cls({"content-type": obj.codec.content_type}, obj.body())

    @classmethod
    def load(cls, value: bytes) -> CachedResponse:
        """The answer that `dump` wrote."""
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
        """Return the page of a continue token; None if the list does not have it."""
        return dict(self.further).get(token)

    def followed_by(self, token: str, page: CachedResponse) -> CachedResponse:
        return self._replace(further=(*self.further, (token, page)))

    def single(self) -> Encoded:
        """The object in the body; ValueError where there is none, or it is over MAX_UNPACKED."""
        return Encoded.read(codec_for(self.encoding), unpacked(self.headers, self.body))

    def version(self) -> int:
        """The resourceVersion of the object in the body; 0 where there is none."""
        try:
            return self.single().decode().version
        except (ValueError, LookupError):
            return 0

    def pages(self) -> Iterator[ListPage[bytes]]:
        """The pages of a list. ValueError where one is no list of objects, or all of them are over MAX_LIST."""
        available = MAX_LIST
        for page in (self, *(page for _, page in self.further)):
            body = unpacked(page.headers, page.body, available)
            available -= len(body)
            if available < 0:
                raise ValueError(f"the list is over the limit of {MAX_LIST} bytes")
            yield codec_for(page.encoding).decode_list(body)

    def list_version(self) -> int:
        """The resourceVersion of the list, or Table, that the body is; 0 where it is none."""
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
        """ValueError where the body is in none of the two."""
        return Encoding(self.headers.get("content-type", "").partition(";")[0].strip())

    def _list_head(self) -> ListHead:
        return list_head(self.encoding, self._head())

    def _head(self) -> bytes:
        """The first bytes of the body, unpacked."""
        if self.headers.get("content-encoding") != "gzip":
            return self.body[:HEAD]
        try:
            return zlib.decompressobj(31).decompress(self.body[:HEAD], HEAD)
        except zlib.error as error:
            raise ValueError(f"the answer cannot be unpacked: {error}") from error


class GrowingLists:
    """Lists of which not all pages have passed yet: puts the pages together, under the key of the list's answer."""

    def __init__(self) -> None:
        self._of_node: OrderedDict[ResponseKey, tuple[str, CachedResponse]] = OrderedDict()
        self._of_others: OrderedDict[ResponseKey, tuple[str, CachedResponse]] = OrderedDict()

    def add(self, key: ResponseKey, token: str, page: CachedResponse) -> CachedResponse | None:
        """Take the page that a client asked for by a continue token ("" for the first page).

        The complete list when this was its last page; None before, and where its earlier pages have not passed.
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
        """Drop lists that may hold the object of a write: further pages are of the version of the first."""
        written = ObjectRef.of(write)
        if written is None:
            return
        for lists in (self._of_node, self._of_others):
            for key in list(lists):
                if (about := ObjectRef.parse(key.about)) is not None and about.meets(written):
                    del lists[key]


def unpacked(headers: Mapping[str, str], body: bytes, limit: int = MAX_UNPACKED) -> bytes:
    """The body of an answer, unpacked; ValueError where it cannot be, or is packed and over the limit."""
    if headers.get("content-encoding") != "gzip":
        return body
    try:
        return unpack_up_to(body, limit)
    except (BodyTooLarge, EOFError, zlib.error) as error:
        raise ValueError(f"the answer cannot be unpacked: {error}") from error


def is_too_large(headers: Mapping[str, str]) -> bool:
    """Whether the headers of an answer announce more than MAX_CACHED."""
    length = headers.get("content-length", "")
    return length.isdecimal() and int(length) > MAX_CACHED


def response_key(
    identity: str, target: str, accept: str, accept_encoding: str, body: bytes = b"", about: str = ""
) -> ResponseKey:
    """The key of an answer: equal for requests of one identity whose answers have the same objects and form."""
    path, _, query = target.partition("?")
    path, parameters = unquote(path), sorted(first_values(query, NAMED_PARAMETERS).items())
    request = orjson.dumps((identity, path, parameters, accept, accept_encoding))
    question = orjson.dumps((identity, path, parameters)) if about else b""
    owner = hashlib.sha256(identity.encode()).hexdigest()[:16] if identity else ""
    name = hashlib.sha256(request + body).hexdigest()[:32]
    return ResponseKey(name, owner, about, hashlib.sha256(question).hexdigest()[:16] if about else "")


class ListHead(NamedTuple):
    """The metadata of a list, or of a Table. `continue_token` is "" where no further page follows."""

    version: int
    continue_token: str


def list_head(encoding: Encoding, head: bytes) -> ListHead:
    """The metadata of a list that begins so.

    `head` is the first HEAD bytes of the body, or all of a shorter one. ValueError where they do not hold the metadata.
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
    """The content of a field with a length, and where the next field begins."""
    length, begin = _length(head, at, tag)
    if begin + length > len(head):
        raise ValueError("the metadata of the list ends early")
    return head[begin : begin + length], begin + length


def _length(head: bytes, at: int, tag: bytes) -> tuple[int, int]:
    """How long a field is, and where its content begins."""
    if not head.startswith(tag, at):
        raise ValueError("the body does not begin as a list")
    return read_varint(head, at + len(tag))


def about_of(answer: CachedResponse) -> str | None:
    """Return the objects in an answer that an earlier release cached, as text of an `ObjectRef`; "" for none.

    None if unknown: that release did not store it.
    """
    try:
        codec = codec_for(answer.encoding)
    except ValueError:
        return ""  # of neither encoding, as OpenAPI is
    try:
        api_version, kind, raw = codec.decode_single(unpacked(answer.headers, answer.body))
        if kind in OF_NO_OBJECT or kind.removesuffix("List").removesuffix("Discovery") in DISCOVERY_KINDS:
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
    """The resource of a kind, with Kubernetes' plural where no other is given."""
    name = kind.lower()
    if name.endswith("endpoints"):
        return name
    if name.endswith(("s", "x", "ch", "sh")):
        return f"{name}es"
    return f"{name[:-1]}ies" if name.endswith("y") and name[-2:-1] not in "aeiou" else f"{name}s"
