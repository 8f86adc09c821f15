"""A request that the hub answers itself while the cloud is away."""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping
from typing import NamedTuple

from addons.offline.cached_response import ResponseKey, response_key
from addons.requests.answers import Answer, object_answer
from kube.errors import bad_request, not_acceptable, unsupported_media_type
from kube.json_type import Json
from kube.message_table import META
from kube.objects.object_patches import apply_patch
from kube.requests.object_ref import ObjectRef
from kube.requests.query import first_values
from kube.requests.request_info import RequestInfo, parse_request
from kube.schemas.json_objects import json_message, json_object
from kube.schemas.recoded import recoded
from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.codec import Codec, codec_for
from kube.wire.encoded_objects import Encoded
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object, write_json
from kube.wire.negotiation import acceptable

SUFFIX_LENGTH = 5
SUFFIX_ALPHABET = string.ascii_lowercase + string.digits
"""The alphabet of generated names, kube-apiserver's own, which lacks some letters."""


def has_options(info: RequestInfo) -> bool:
    """Whether the options of a write are in its body: for a deletion, or an eviction."""
    return info.verb in ("delete", "deletecollection") or info.subresource == "eviction"


class OfflineRequest(NamedTuple):
    """A request with its body. `target` is the request target on the wire, `content_type` has no parameters."""

    info: RequestInfo
    target: str
    content_type: str
    accept: str | None
    accept_encoding: str
    body: bytes

    @classmethod
    def of(cls, info: RequestInfo, target: str, headers: Mapping[str, str], body: bytes) -> OfflineRequest:
        """Parse a request. `headers` is a mapping with case-insensitive names."""
        content_type = headers.get("Content-Type", "").partition(";")[0].strip()
        accept, packed = headers.get("Accept"), headers.get("Accept-Encoding", "")
        return cls(info, target, content_type, accept, packed, body)

    def key(self, identity: str) -> ResponseKey:
        """The key under which `CachedResponses` stores the answer for an identity."""
        about = ref.text if self.info.method == "GET" and (ref := ObjectRef.of(self.info)) is not None else ""
        return response_key(identity, self.target, self.accept or "", self.accept_encoding, self.body, about)

    def read_key(self, identity: str, path: str = "") -> ResponseKey:
        """Return the key of the answer to the same client's GET of `path`, by default of this request's own object."""
        target = path or self.object_path
        ref = ObjectRef.of(parse_request("GET", target))
        assert ref is not None
        return response_key(identity, target, self.accept or "", self.accept_encoding, about=ref.text)

    @property
    def object_path(self) -> str:
        """The path of the object, without the subresource."""
        assert self.info.type is not None
        return self.info.type.path(self.info.namespace, self.info.name)

    def encodings(self) -> list[Encoding]:
        """The encodings of full objects that the client accepts, by preference."""
        return [clause.encoding for clause in acceptable(self.accept) if not clause.kind]

    def named(self, kind: str) -> tuple[Codec, ApiObject]:
        """Decode the object in the body, completed by a generated name and the request's namespace; StatusError 400,
        415."""
        codec, obj = self.decoded(kind)
        metadata = obj.fields.child("metadata")
        if not obj.name:
            if not metadata.text("generateName"):
                raise bad_request("name or generateName is required")
            suffix = "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(SUFFIX_LENGTH))
            metadata.set("name", metadata.text("generateName") + suffix)
        if not obj.namespace:
            metadata.set("namespace", self.info.namespace)
        if obj.namespace != self.info.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        return codec, obj

    def decoded(self, kind: str) -> tuple[Codec, ApiObject]:
        """Decode the object in the body, which must be of `kind`; StatusError 400, 415."""
        try:
            encoding = Encoding(self.content_type or Encoding.JSON)
        except ValueError:
            raise unsupported_media_type(f"the body's type {self.content_type} is not supported") from None
        codec = codec_for(encoding)
        try:
            api_version, said_kind, raw = codec.decode_single(self._typed(encoding, kind))
            if said_kind != kind:
                raise ValueError(f"it is a {said_kind or 'nothing'}, not a {kind}")
            return codec, decode_object(encoding, api_version, said_kind, raw)
        except ValueError as error:
            raise bad_request(f"the body cannot be read: {error}") from None

    @property
    def is_for_cloud(self) -> bool:
        """Whether only the cloud carries this out: a server-side apply, and a body of YAML or CBOR."""
        return self.content_type.endswith(("yaml", "cbor"))

    def patched(self, known: Encoded) -> OfflineRequest:
        """Return the PUT that a PATCH of `known` is equivalent to, or a PUT itself; StatusError as in `apply_patch`."""
        if self.info.method != "PATCH":
            return self
        if known.codec.encoding is Encoding.JSON:
            document = parse_object(known.raw)
        else:
            document = json_object(known.api_version, known.kind, known.raw)
        patched = apply_patch(self.content_type, document, self.body, known.kind)
        return self._replace(content_type=Encoding.JSON, body=write_json(patched))

    @property
    def is_dry_run(self) -> bool:
        """Whether the request is a dry run. Options in a body replace those in the query."""
        if not self.body or not has_options(self.info):
            return bool(first_values(self.target.partition("?")[2], {"dryRun"}))
        try:
            return bool(self._delete_options().get("dryRun"))
        except (ValueError, LookupError):
            return b"dryRun" in self.body  # YAML or CBOR

    def _delete_options(self) -> Json:
        """Decode the options in the body of a deletion or an eviction; ValueError and LookupError if there are none."""
        if self.content_type in ("", Encoding.JSON):
            given: Json = parse_object(self.body)
        elif self.info.subresource:
            given = json_object(*codec_for(Encoding(self.content_type)).decode_single(self.body))
        else:
            _, _, raw = codec_for(Encoding(self.content_type)).decode_single(self.body)
            given = json_message(f"{META}.DeleteOptions", raw)
        return given.get("deleteOptions") or {} if self.info.subresource else given

    def _typed(self, encoding: Encoding, kind: str) -> bytes:
        """Decode the body. Like kube-apiserver, take apiVersion and kind from the path if JSON lacks them."""
        assert self.info.type is not None
        if encoding is not Encoding.JSON:
            return self.body
        given = parse_object(self.body)
        lacking = {"kind": kind, "apiVersion": self.info.type.api_version}
        lacking = {name: text for name, text in lacking.items() if not given.get(name)}
        return write_json(given | lacking) if lacking else self.body

    def answered(self, obj: Encoded, status: int = 200) -> Answer:
        """Return an answer with the object, in its own encoding if the client accepts that.

        StatusError 406 if the client accepts no complete object, 400 if the object cannot be converted.
        """
        encodings = self.encodings()
        if not encodings:
            raise not_acceptable("the answer is a complete object, in JSON or protobuf")
        if obj.codec.encoding not in encodings:
            try:
                obj = recoded(obj, encodings[0])
            except (ValueError, LookupError) as error:
                raise bad_request(f"the object cannot be converted: {error}") from None
        return object_answer(obj, status)
