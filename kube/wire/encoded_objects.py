"""One encoded object, in a store or a response: its codec, its kind and its raw form."""

from __future__ import annotations

from typing import NamedTuple

from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.codec import Codec


class Encoded(NamedTuple):
    """An immutable object. `decode` returns a copy that the caller may write to."""

    codec: Codec
    api_version: str
    kind: str
    raw: bytes

    @classmethod
    def of(cls, codec: Codec, obj: ApiObject) -> Encoded:
        """Encode a decoded object in its current state."""
        return cls(codec, obj.api_version, obj.kind, obj.encode())

    @classmethod
    def read(cls, codec: Codec, body: bytes) -> Encoded:
        """Read the object in a body; ValueError if there is none."""
        return cls(codec, *codec.decode_single(body))

    def decode(self) -> ApiObject:
        """Decode a copy. ValueError if the raw form is malformed."""
        return decode_object(self.codec.encoding, self.api_version, self.kind, self.raw)

    def body(self) -> bytes:
        return self.codec.encode_single(self.api_version, self.kind, self.raw)
