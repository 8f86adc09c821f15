"""Times, quantities and other types with their own JSON form, written like in Go."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kube.json_type import Json
from kube.schemas.json_objects import SCALARS, WRITTEN, go_time

META = "apimachinery.pkg.apis.meta.v1"
CRD = "apiextensions_apiserver.pkg.apis.apiextensions.v1"


@pytest.mark.parametrize(
    ("name", "fields", "written"),
    [
        (f"{META}.Time", {}, None),
        (f"{META}.Time", {"seconds": 1, "nanos": 5}, "1970-01-01T00:00:01Z"),
        (f"{META}.Time", {"seconds": -62135596800}, "0001-01-01T00:00:00Z"),
        (f"{META}.MicroTime", {"seconds": 1, "nanos": 5999}, "1970-01-01T00:00:01.000005Z"),
        (f"{META}.MicroTime", {}, None),
        (f"{META}.FieldsV1", {"Raw": "eyJhIjp7fX0="}, {"a": {}}),
        (f"{META}.FieldsV1", {}, None),
        (f"{META}.Verbs", {"items": ["get"]}, ["get"]),
        (f"{META}.Verbs", {}, None),
        ("apimachinery.pkg.api.resource.Quantity", {"string": "100m"}, "100m"),
        ("apimachinery.pkg.api.resource.Quantity", {"string": ""}, "0"),
        ("apimachinery.pkg.runtime.RawExtension", {"raw": "eyJhIjoxfQ=="}, {"a": 1}),
        ("apimachinery.pkg.util.intstr.IntOrString", {"type": 0, "intVal": 80, "strVal": ""}, 80),
        ("apimachinery.pkg.util.intstr.IntOrString", {"type": 1, "intVal": 0, "strVal": "http"}, "http"),
        (f"{CRD}.JSON", {"raw": ""}, None),
        (f"{CRD}.JSONSchemaPropsOrBool", {"allows": True}, True),
        (f"{CRD}.JSONSchemaPropsOrBool", {"allows": True, "schema": {"type": "x"}}, {"type": "x"}),
        (f"{CRD}.JSONSchemaPropsOrArray", {"jSONSchemas": [{}]}, [{}]),
        (f"{CRD}.JSONSchemaPropsOrArray", {"schema": {}}, {}),
        (f"{CRD}.JSONSchemaPropsOrStringArray", {"property": ["a"]}, ["a"]),
        ("api.certificates.v1.ExtraValue", {"items": ["a"]}, ["a"]),
    ],
)
def test_a_type_writes_its_own_json(name: str, fields: Json, written: object) -> None:
    assert WRITTEN[name](fields) == written


@pytest.mark.parametrize("seconds", [1 << 62, -(1 << 62), -62135596801, 253402300800])
def test_a_time_beyond_the_calendar_is_refused(seconds: int) -> None:
    with pytest.raises(ValueError, match="no time"):
        go_time(seconds)


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("s", b"a\xff", "a\ufffd"),
        ("y", b"\x00\x01", "AAE="),
        ("b", b"\x01", True),
        ("i", b"\x96\x01", 150),
        ("i", b"\xff" * 9 + b"\x01", -1),
        ("d", struct.pack("<d", 3.0), 3),
        ("d", struct.pack("<d", 0.5), 0.5),
        ("d", struct.pack("<d", 1e300), 1e300),
    ],
)
def test_a_scalar_has_its_json_value(kind: str, data: bytes, value: Any) -> None:
    found = SCALARS[kind](data, 0, len(data), 1)
    assert (found, type(found)) == (value, type(value))
