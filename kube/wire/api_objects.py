"""An API object as filters see it: its kind, its name, and its fields, in either encoding."""

from kube.requests.resource_versions import parse_version
from kube.wire.encoding import Encoding
from kube.wire.fields import Edits, Fields
from kube.wire.json_fields import JsonFields, parse_object_lazily
from kube.wire.protobuf_fields import ProtobufFields
from kube.wire.schema import message_type_of


class ApiObject:
    """One object. Only the code that decoded it may write to it."""

    __slots__ = ("_edits", "_raw", "api_version", "encoding", "fields", "kind")

    def __init__(
        self, encoding: Encoding, api_version: str, kind: str, raw: bytes, fields: Fields, edits: Edits
    ) -> None:
        self.encoding = encoding
        self.api_version = api_version
        self.kind = kind
        self.fields = fields
        self._raw = raw
        self._edits = edits

    @property
    def name(self) -> str:
        return self.fields.child("metadata").text("name")

    @property
    def namespace(self) -> str:
        return self.fields.child("metadata").text("namespace")

    @property
    def uid(self) -> str:
        return self.fields.child("metadata").text("uid")

    @property
    def version(self) -> int:
        """metadata.resourceVersion; 0 if absent or malformed."""
        try:
            return parse_version(self.fields.child("metadata").text("resourceVersion"))
        except ValueError:
            return 0

    @property
    def labels(self) -> dict[str, str]:
        """A copy of the labels."""
        return self.fields.child("metadata").mapping("labels")

    @property
    def annotations(self) -> dict[str, str]:
        """A copy of the annotations."""
        return self.fields.child("metadata").mapping("annotations")

    def encode(self) -> bytes:
        """The encoded object: the original bytes, unless a field was written."""
        return self.fields.encode() if self._edits.made else self._raw


def decode_object(encoding: Encoding, api_version: str, kind: str, raw: bytes) -> ApiObject:
    """Decode the object in `raw`: a bare protobuf message, or JSON text.

    A protobuf kind without a schema has only its metadata. ValueError if the bytes are malformed.
    """
    edits = Edits()
    fields: Fields
    if encoding is Encoding.PROTOBUF:
        message_type = message_type_of(api_version, kind)
        fields = ProtobufFields(message_type, message_type.parse(raw), edits)
    else:
        fields = JsonFields(parse_object_lazily(raw), edits)
    return ApiObject(encoding, api_version, kind, raw, fields, edits)
