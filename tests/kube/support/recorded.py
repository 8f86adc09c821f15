"""The fixtures by name, as bytes and as objects; fixtures/record.py documents them."""

from __future__ import annotations

from pathlib import Path

from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding

FOLDER = Path(__file__).parents[1] / "fixtures"
SUFFIXES = {Encoding.JSON: "json", Encoding.PROTOBUF: "pb"}


def names(what: str = "*") -> list[str]:
    """Return the names of all recordings of this form, as "services.list"."""
    return sorted(path.stem for path in FOLDER.glob(f"*.{what}.pb"))


OBJECTS = [*names("single"), "services.metadata"]
"""Bodies that are one object."""
FAILURES = ["services.missing", "services.invalid", "services.future"]
"""Bodies that are a Status."""
SINGLES = OBJECTS + FAILURES
LISTS = [*names("list"), "services.page"]
STREAMS = [*names("watch"), *names("initial"), "services.expired"]


def body(name: str, encoding: Encoding) -> bytes:
    return (FOLDER / f"{name}.{SUFFIXES[encoding]}").read_bytes()


def single(name: str, encoding: Encoding) -> tuple[str, str, bytes]:
    """Return apiVersion, kind and raw form."""
    return codec_for(encoding).decode_single(body(name, encoding))


def obj(name: str, encoding: Encoding) -> ApiObject:
    return decode_object(encoding, *single(name, encoding))
