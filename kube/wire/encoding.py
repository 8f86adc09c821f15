"""The encodings of the Kubernetes API that hub and manager support. They never request CBOR, which is alpha."""

from enum import StrEnum


class Encoding(StrEnum):
    """An encoding; the value is its media type, as in Content-Type without parameters."""

    JSON = "application/json"
    PROTOBUF = "application/vnd.kubernetes.protobuf"
