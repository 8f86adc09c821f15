"""The encodings are media types, comparable with headers."""

from kube.wire.encoding import Encoding


def test_an_encoding_is_its_media_type() -> None:
    assert [str(encoding) for encoding in Encoding] == [
        "application/json",
        "application/vnd.kubernetes.protobuf",
    ]
    assert Encoding("application/json") is Encoding.JSON
