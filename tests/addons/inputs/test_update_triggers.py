"""A change of nothing but a trigger annotation is no change of an input; any other change is one."""

from __future__ import annotations

from typing import Any

import pytest

from addons.inputs.update_triggers import TRIGGERS, is_only_triggered
from kube.store.store import Item, Store
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from tests.addons.filters.support.samples import Sample, endpoint, endpoint_slice

FIRST = {TRIGGERS[0]: "1"}


def item(version: int, encoding: Encoding, **content: Any) -> Item:
    sample: Sample = endpoint_slice(
        [endpoint("10.0.0.1", content.pop("node", "n1"))], annotations=content or None
    )
    sample.content["metadata"]["resourceVersion"] = str(version)
    store = Store()
    raw = sample.build(encoding).encode()
    store.replace(codec_for(encoding), sample.api_version, sample.kind, version, [raw])
    return next(iter(store))


@pytest.mark.parametrize("encoding", list(Encoding), ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("before", "after", "only"),
    [
        (FIRST, {TRIGGERS[0]: "2"}, True),
        ({}, {TRIGGERS[1]: "2"}, True),
        ({"x": "1"} | FIRST, {"x": "1"}, True),
        (FIRST, {TRIGGERS[0]: "2", "node": "n2"}, False),
        (FIRST, {TRIGGERS[0]: "2", "x": "1"}, False),
        (FIRST, FIRST | {"x": "1"}, False),
        ({}, {"x": "1"}, False),
        (FIRST, FIRST | {"node": "n2"}, False),
    ],
)
def test_table(encoding: Encoding, before: dict[str, str], after: dict[str, str], only: bool) -> None:
    assert is_only_triggered(item(1, encoding, **before), item(2, encoding, **after)) is only
