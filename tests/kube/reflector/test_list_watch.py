"""The requests of a list-watch."""

from __future__ import annotations

import pytest

from kube.reflector.list_watch import ListWatch
from kube.wire.encoding import Encoding
from tests.kube.support.reflecting import SERVICES


def test_a_json_list_watch_accepts_json_only_and_a_protobuf_one_both() -> None:
    binary = "application/vnd.kubernetes.protobuf"
    assert ListWatch(SERVICES, encoding=Encoding.JSON).accept == "application/json"
    assert ListWatch(SERVICES).accept == f"{binary},application/json"
    partial = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    metadata = ListWatch(SERVICES, metadata_only=True).accept_as("PartialObjectMetadata")
    assert metadata == f"{binary}{partial},application/json{partial}"


@pytest.mark.parametrize(
    ("list_watch", "is_unfiltered"),
    [
        (ListWatch(SERVICES), True),
        (ListWatch(SERVICES, encoding=Encoding.JSON), True),
        (ListWatch(SERVICES, "default"), False),
        (ListWatch(SERVICES, label_selector="app=web"), False),
        (ListWatch(SERVICES, field_selector="metadata.name=web"), False),
        (ListWatch(SERVICES, metadata_only=True), False),
    ],
)
def test_a_list_watch_is_unfiltered_without_any_restriction(
    list_watch: ListWatch, is_unfiltered: bool
) -> None:
    assert list_watch.is_unfiltered is is_unfiltered
