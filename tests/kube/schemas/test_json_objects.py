"""A protobuf object of every kind converts to kube-apiserver's JSON; malformed bytes are a ValueError."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube.json_type import Json
from kube.schemas.json_objects import MAX_DEPTH, json_object, shown_object
from kube.wire.codec import codec_for
from kube.wire.encoding import Encoding
from kube.wire.protobuf_codec import delimited, open_envelope
from scripts.building.schemas import source_folders
from tests.cloud.real import RealCloud
from tests.kube.support import recorded
from tests.kube.support.every_kind import created, served

JSON, PROTOBUF = Encoding.JSON, Encoding.PROTOBUF
CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


@pytest.mark.parametrize("name", recorded.SINGLES)
def test_a_protobuf_object_equals_the_servers_json(name: str) -> None:
    api_version, kind, raw = recorded.single(name, PROTOBUF)
    assert json_object(api_version, kind, raw) == orjson.loads(recorded.body(name, JSON))


@pytest.mark.parametrize(
    "kind", [("v1", "Pod"), ("v1", "Secret"), ("discovery.k8s.io/v1", "EndpointSlice"), CRD]
)
@given(raw=st.binary())
@example(raw=b"\x0a")
@example(raw=b"\x0a\x05")
@example(raw=b"\x0f\x00")
@example(raw=b"\x80")
@example(raw=b"\x0a\x05\x4a\x03\x08\x80\x80")
def test_malformed_bytes_are_refused(kind: tuple[str, str], raw: bytes) -> None:
    with suppress(ValueError):
        orjson.dumps(json_object(*kind, raw))


@given(cut=st.integers(0), at=st.integers(0), byte=st.integers(0, 255))
def test_a_truncated_object_is_refused_or_decoded(cut: int, at: int, byte: int) -> None:
    api_version, kind, raw = recorded.single("pods.single", PROTOBUF)
    torn = bytearray(raw[: cut % len(raw) + 1])
    torn[at % len(torn)] = byte
    with suppress(ValueError):
        orjson.dumps(shown_object(api_version, kind, bytes(torn)))


def test_an_unknown_protobuf_field_is_shown_by_number_and_size() -> None:
    raw = delimited(b"\x0a", delimited(b"\x0a", b"web")) + b"\xf8\x07\x07" + delimited(b"\x82\x08", b"12345")
    shown = shown_object("v1", "Service", raw)
    assert shown["metadata"] == {"name": "web"}
    assert (shown["field 127"], shown["field 128"]) == (7, "(5 bytes)")
    assert not any(name.startswith("field") for name in json_object("v1", "Service", raw))


def test_an_unknown_kind_is_shown_as_metadata_and_not_converted() -> None:
    raw = delimited(b"\x0a", delimited(b"\x0a", b"web")) + delimited(b"\x12", b"12345")
    shown = shown_object("example.com/v1", "Odd", raw)
    assert shown == {
        "kind": "Odd",
        "apiVersion": "example.com/v1",
        "metadata": {"name": "web"},
        "field 2": "(5 bytes)",
    }
    with pytest.raises(LookupError, match=r"example\.com/v1 Odd"):
        json_object("example.com/v1", "Odd", raw)


def test_a_message_nested_too_deep_is_refused() -> None:
    def nested_schema(levels: int) -> bytes:
        """Return a CRD whose schema nests arrays to this depth."""
        schema = b""
        for _ in range(levels):
            schema = delimited(b"\xc2\x01", delimited(b"\x0a", schema))  # items, of JSONSchemaPropsOrArray
        version = delimited(b"\x0a", b"v1") + delimited(b"\x22", delimited(b"\x0a", schema))
        return delimited(b"\x12", delimited(b"\x3a", version))

    deep = json_object(*CRD, nested_schema(MAX_DEPTH // 2 - 3))
    assert deep["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["items"]["items"]
    with pytest.raises(ValueError, match="nested deeper"):
        json_object(*CRD, nested_schema(MAX_DEPTH * 100))


def test_importing_the_hub_does_not_load_the_messages() -> None:
    program = (
        "import addons.hub, addons.command, addons.ui.admin\n"
        "from kube.schemas.published import messages\n"
        "assert not messages.cache_info().currsize\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


# -- on the real control plane -------------------------------------------------------------------------------------


pytestmark = pytest.mark.real


def test_every_served_kind_is_equal_in_both_encodings(real_cloud: RealCloud, namespace: str) -> None:
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


def test_every_field_of_every_published_kind_equals_the_published_schema(
    cloud_programs: dict[str, Path],
) -> None:
    not_served = {"core.v1.WatchEvent", "imagepolicy.k8s.io.v1alpha1.ImageReview"}

    def samples() -> Iterator[tuple[str, bytes, Json]]:
        folder = source_folders()[0] / "testdata" / "HEAD"
        for path in sorted(folder.glob("*.pb")):
            if path.stem not in not_served:
                yield path.stem, path.read_bytes(), orjson.loads(path.with_suffix(".json").read_bytes())

    assert cloud_programs
    different, seen = [], 0
    # The published samples lack the type in the claims of a StatefulSet; a server writes it, as the other test shows.
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
