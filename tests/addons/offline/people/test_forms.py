"""Which form of a copy a client gets: its first choice that can be made of what the copy has."""

from __future__ import annotations

import pytest

from addons.offline.people.forms import first_form
from kube.store.store import Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.support.samples import read_of
from tests.kube.support import recorded

JSON, PROTOBUF = Encoding.JSON, Encoding.PROTOBUF
TABLE = f"{JSON};as=Table;v=v1;g=meta.k8s.io"
METADATA = f"{JSON};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("kept", "kind", "accept", "form"),
    [
        (PROTOBUF, "Service", PROTOBUF, "whole"),
        (PROTOBUF, "Service", JSON, "whole as JSON"),
        (PROTOBUF, "Service", METADATA, "metadata as JSON"),
        (PROTOBUF, "Service", f"{TABLE},{JSON}", "Table v1 with Metadata"),
        (PROTOBUF, "Service", f"{PROTOBUF},{JSON}", "whole"),
        (PROTOBUF, "Odd", f"{TABLE},{JSON}", None),
        (JSON, "Odd", f"{TABLE},{JSON}", "Table v1 with Metadata"),
        (JSON, "Service", f"{PROTOBUF},{JSON}", "whole"),
        (JSON, "Service", PROTOBUF, None),
    ],
)
def test_the_first_choice_that_can_be_made(kept: Encoding, kind: str, accept: str, form: str | None) -> None:
    store, read = Store(), read_of("/api/v1/services", accept)
    raws = [recorded.single("services.single", kept)[2]] if kind == "Service" else []
    store.replace(codec_for(kept), "v1", kind, 9, raws)
    found = first_form(read.accepted, read, store)
    assert (found.name if found is not None else None) == form
