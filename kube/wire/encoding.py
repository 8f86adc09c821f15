"""The encodings of the Kubernetes API that we read and write; CBOR, an alpha of the server, is never asked for."""

from enum import StrEnum


class Encoding(StrEnum):
    """An encoding; the value is its media type, as in Content-Type without parameters."""

    JSON = "application/json"
    PROTOBUF = "application/vnd.kubernetes.protobuf"
