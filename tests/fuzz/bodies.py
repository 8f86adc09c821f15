"""Fuzz target: lists and single objects, in both encodings."""

from __future__ import annotations

from collections.abc import Iterator

from kube.wire.codec import codec_for
from kube.wire.codec_base import ListMeta
from kube.wire.encoding import Encoding
from tests.fuzz.objects import ENCODINGS, check_object, choose
from tests.kube.support.recorded import LISTS, SINGLES, body


def seeds() -> Iterator[bytes]:
    for number, encoding in enumerate(ENCODINGS):
        for name in (*LISTS, *SINGLES):
            yield bytes([number]) + body(name, encoding)


def run(data: bytes) -> None:
    encoding, text = choose(data)
    _list(encoding, text)
    _single(encoding, text)


def _list(encoding: Encoding, text: bytes) -> None:
    codec = codec_for(encoding)
    try:
        page = codec.decode_list(text)
    except ValueError:
        return
    again = codec.decode_list(
        bytes(codec.encode_list(page.api_version, page.kind, ListMeta(page.version), page.items))
    )
    assert (again.kind, again.version, again.items) == (page.kind, page.version, page.items)
    for raw in page.items[:4]:
        check_object(encoding, page.api_version, page.kind, raw)


def _single(encoding: Encoding, text: bytes) -> None:
    codec = codec_for(encoding)
    try:
        api_version, kind, raw = codec.decode_single(text)
    except ValueError:
        return
    assert codec.decode_single(codec.encode_single(api_version, kind, raw)) == (api_version, kind, raw)
    if kind != "Status":  # a response that is no object: its metadata is a list's
        check_object(encoding, api_version, kind, raw)
