"""The JSON made of a real kube-apiserver's protobuf is the JSON that it sends itself, of every kind that it serves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from kube.json_type import Json
from kube.schemas.json_objects import json_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from kube.wire.protobuf_codec import open_envelope
from scripts.building.schemas import source_folders
from tests.cloud.real import RealCloud
from tests.kube.support.every_kind import created, served

pytestmark = pytest.mark.real
JSON, PROTOBUF = Encoding.JSON, Encoding.PROTOBUF


def test_every_kind_that_is_served_is_the_same_in_both_encodings(
    real_cloud: RealCloud, namespace: str
) -> None:
    def key(obj: Json) -> tuple[str, str]:
        return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]

    def bodies(cloud: RealCloud, path: str) -> dict[Encoding, bytes]:
        return {each: cloud.admin.request("GET", path, headers={"Accept": each}).body for each in Encoding}

    kinds = [each for each in served(real_cloud) if "list" in each.verbs]
    with created(real_cloud, namespace, kinds):
        without = []
        for kind in kinds:
            answers = bodies(real_cloud, f"{kind.path}/{kind.resource}")
            page = codec_for(PROTOBUF).decode_list(answers[PROTOBUF])
            items = {key(each): each for each in orjson.loads(answers[JSON])["items"]}
            found = [json_object(page.api_version, page.kind, raw) for raw in page.items]
            for obj in found:
                assert obj == {"kind": kind.kind, "apiVersion": page.api_version} | items.get(key(obj), {})
            if not found:
                without.append(kind.resource)
        assert without == []


def test_every_field_of_every_published_kind_is_as_published(cloud_programs: dict[str, Path]) -> None:
    not_served = {"core.v1.WatchEvent", "imagepolicy.k8s.io.v1alpha1.ImageReview"}

    def samples() -> Iterator[tuple[str, bytes, Json]]:
        folder = source_folders()[0] / "testdata" / "HEAD"
        for path in sorted(folder.glob("*.pb")):
            if path.stem not in not_served:
                yield path.stem, path.read_bytes(), orjson.loads(path.with_suffix(".json").read_bytes())

    assert cloud_programs
    different, seen = [], 0
    # The published samples have no type in the claims of a StatefulSet. A server writes it, as the other test shows.
    no_type = {"StatefulSet"}
    for name, body, want in samples():
        api_version, kind, raw = open_envelope(body)
        found = json_object(api_version, kind, raw)
        if kind in no_type:
            for claim in found["spec"]["volumeClaimTemplates"]:
                claim.pop("kind", None)
                claim.pop("apiVersion", None)
        seen += 1
        if found != want:
            different.append(name)
    assert different == []
    assert seen > 150
