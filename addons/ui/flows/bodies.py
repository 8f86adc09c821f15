"""Copies streamed bodies of a flow, for display and for files: small bodies unchanged, large lists with one line per
object.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from mitmproxy import http
from mitmproxy.net import encoding as content_encoding

from addons.ui.flows.interventions import TEXT_BODY
from addons.ui.masking import Visible
from addons.ui.readable import readable_body, readable_table
from kube.http.gzip_bodies import unpack_up_to
from kube.http.session import BodyTooLarge
from kube.wire.encoding import Encoding
from kube.wire.protobuf_codec import MAGIC

MAX_SHOWN_BODY = 1024 * 1024
"""Maximum bytes of a body that is stored unchanged."""
MAX_TABLE = 4 * 1024 * 1024
"""Maximum bytes of a list, compressed and uncompressed, that is stored as a table. Parsing it takes the event loop a
tenth of a second.
"""
MAX_ACTIVE = 64 * 1024 * 1024
"""Maximum bytes of all bodies copied at a time. Further bytes are sent, but not copied."""

NOTE = b"# edgehub: "
"""Prefix of each text that the hub stores instead of a body."""

type StreamFunction = bool | Callable[[bytes], Iterable[bytes] | bytes]


class ByteBudget:
    """A budget of bytes, or characters, shared by several buffers."""

    def __init__(self, size: int) -> None:
        self.taken = 0
        self._size = size

    @property
    def is_overdrawn(self) -> bool:
        return self.taken > self._size

    def reserve(self, size: int) -> bool:
        """Take bytes from the budget, and return True; return False if they exceed it."""
        if self.taken + size > self._size:
            return False
        self.taken += size
        return True

    def release(self, size: int) -> None:
        self.taken -= size


class Copy:
    """A stream function that passes pieces to `then`, and copies them until the body is too large."""

    def __init__(self, then: StreamFunction, active: ByteBudget) -> None:
        self._then = then
        self._active = active
        self._pieces: list[bytes] = []
        self._held = 0
        self.size = 0
        self.is_complete = True

    def __call__(self, piece: bytes) -> Iterable[bytes] | bytes:
        passed = self._then(piece) if callable(self._then) else piece
        if isinstance(passed, bytes):
            self._keep(passed)
            return passed
        parts = list(passed)
        for part in parts:
            self._keep(part)
        return parts

    def joined(self, piece: bytes) -> bytes:
        """Process a piece for a stream function that must return exactly one piece."""
        passed = self(piece)
        return passed if isinstance(passed, bytes) else b"".join(passed)

    def end(self) -> bytes | None:
        """End the copy, and return the body; None if it was too large."""
        body = b"".join(self._pieces) if self.is_complete else None
        self._drop()
        return body

    def stop(self) -> None:
        """Stop copying, and drop the copied pieces."""
        self.is_complete = False
        self._drop()

    def _keep(self, piece: bytes) -> None:
        self.size += len(piece)
        if not self.is_complete:
            return
        if self.size > MAX_TABLE or not self._active.reserve(len(piece)):
            self.stop()
            return
        self._held += len(piece)
        self._pieces.append(piece)

    def _drop(self) -> None:
        self._pieces.clear()
        self._active.release(self._held)
        self._held = 0


def keep(message: http.Message, body: bytes | None, size: int, *, is_secret: bool, visible: Visible) -> str:
    """Store the body of an ended flow, or a text instead of it. Return the remark for the flow's comment, or "".

    `body` is None if none of its `size` bytes were copied. An `is_secret` body is stored as text without secret values.
    """
    if body is not None and len(body) <= MAX_SHOWN_BODY and not is_secret:
        message.data.content = body
        return ""
    text, said = _text_for(message, body, size, is_secret=is_secret, visible=visible)
    message.data.content = content_encoding.encode(text, message.headers.get("content-encoding", "identity"))
    return said


@contextmanager
def decoded(flow: http.HTTPFlow, visible: Visible) -> Iterator[None]:
    """Decode a flow's protobuf bodies within the context, for files that are opened in a mitmproxy without these
    views.
    """
    messages = [message for message in (flow.request, flow.response) if message is not None]
    bodies, metadata = [message.data.content for message in messages], flow.metadata
    for message in messages:
        if _encoding_of(message) is Encoding.PROTOBUF:
            _decode(message, visible)
    if flow.request.data.content != bodies[0]:
        flow.metadata = {**metadata, TEXT_BODY: True}
    try:
        yield
    finally:
        flow.metadata = metadata
        for message, body in zip(messages, bodies, strict=True):
            message.data.content = body


def _decode(message: http.Message, visible: Visible) -> None:
    """Replace a complete protobuf body by text. Unreadable bodies, and the hub's own texts, stay unchanged."""
    body = message.raw_content or b""
    try:
        plain = _plain(message, body)
        text = readable_body(Encoding.PROTOBUF, plain, visible=visible) if plain.startswith(MAGIC) else ""
    except ValueError:
        return
    if text:
        said = NOTE + f"{len(body)} bytes of protobuf\n".encode() + text.encode()
        message.data.content = content_encoding.encode(
            said, message.headers.get("content-encoding", "identity")
        )


def _text_for(
    message: http.Message, body: bytes | None, size: int, *, is_secret: bool, visible: Visible
) -> tuple[bytes, str]:
    if body is None:
        said = f"{size} bytes, too many to keep"
        return NOTE + said.encode() + b"\n", said
    if not body:
        return b"", ""
    encoding = _encoding_of(message)
    try:
        plain = _plain(message, body)
        if is_secret:
            said = "tokens alone are hidden" if visible.secrets else "secrets are hidden"
            text = readable_body(encoding, plain, visible=visible)
        else:
            said = f"{size} bytes, kept as a table"
            text = readable_table(encoding, plain)
    except ValueError:
        is_hidden = is_secret and not visible.secrets
        said = "secrets are hidden" if is_hidden else f"{size} bytes, too many to keep"
        text = f"({size} bytes)\n"
    return NOTE + said.encode() + b"\n" + text.encode(), said


def _plain(message: http.Message, body: bytes) -> bytes:
    """Return the uncompressed body. ValueError if it is corrupt or larger than MAX_TABLE; mitmproxy itself would
    decompress any amount.
    """
    match message.headers.get("content-encoding", "identity"):
        case "identity":
            return body
        case "gzip":
            try:
                return unpack_up_to(body, MAX_TABLE)
            except (BodyTooLarge, EOFError, zlib.error) as error:
                raise ValueError(f"the body cannot be unpacked: {error}") from error
        case coding:
            raise ValueError(f"the body is packed in {coding}, which no API server does")


def _encoding_of(message: http.Message) -> Encoding:
    return (
        Encoding.PROTOBUF
        if str(Encoding.PROTOBUF) in message.headers.get("content-type", "")
        else Encoding.JSON
    )
