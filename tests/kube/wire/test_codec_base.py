"""What the codecs share: reading a Status, kinds of lists, and that a broken reader stays broken."""

from __future__ import annotations

import pytest

from kube.wire.codec_base import FrameReader, WatchFrame, item_kind, read_status
from kube.wire.encoding import Encoding
from kube.wire.fields import Edits
from kube.wire.json_fields import JsonFields
from tests.kube.support.recorded import obj


class Lines(FrameReader):
    """Events are lines; "!" is none."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = b""

    def _read(self, chunk: bytes) -> list[WatchFrame]:
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        if b"!" in lines:
            raise ValueError("garbage")
        return [WatchFrame("ADDED", "v1", "Service", line) for line in lines]

    def _left_over(self) -> int:
        return len(self.rest)


def test_a_broken_reader_stays_broken() -> None:
    reader = Lines()
    with pytest.raises(ValueError, match="garbage"):
        reader.feed(b"!\n")
    with pytest.raises(ValueError, match="broken before: garbage"):
        reader.feed(b"a\n")
    with pytest.raises(ValueError, match="broken before: garbage"):
        reader.close()


def test_a_reader_cannot_go_on_after_its_end_within_an_event() -> None:
    reader = Lines()
    reader.feed(b"a")
    with pytest.raises(ValueError, match="within an event"):
        reader.close()
    with pytest.raises(ValueError, match="broken before"):
        reader.feed(b"\n")


@pytest.mark.parametrize("kind", ["", "List", "Table", "Service", "ServiceLists"])
def test_what_is_no_list_of_one_kind(kind: str) -> None:
    with pytest.raises(ValueError, match="is not the kind of a list"):
        item_kind(kind)


def test_read_status_of_the_server(encoding: Encoding) -> None:
    invalid = read_status(obj("services.invalid", encoding).fields)
    assert (invalid.code, invalid.reason, invalid.retry_after) == (422, "Invalid", None)
    assert invalid.message.endswith("resourceVersionMatch is forbidden unless resourceVersion is provided")
    assert dict(invalid.details) == {
        "group": "meta.k8s.io",
        "kind": "ListOptions",
        "causes": [
            {
                "reason": "FieldValueForbidden",
                "message": "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                "field": "resourceVersionMatch",
            }
        ],
    }
    future = read_status(obj("services.future", encoding).fields)
    assert (future.code, future.reason, future.retry_after) == (504, "Timeout", 1)
    assert future.details["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert future.details["retryAfterSeconds"] == 1
    missing = read_status(obj("services.missing", encoding).fields)
    assert (missing.code, dict(missing.details)) == (404, {"name": "nobody", "kind": "services"})


def test_a_status_that_says_nothing_is_an_internal_error() -> None:
    empty = read_status(JsonFields({"details": [], "code": "410"}, Edits()))
    assert (empty.code, empty.reason, empty.message, dict(empty.details)) == (500, "", "", {})
