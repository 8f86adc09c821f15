"""Renders a single filtered object in the form that its client asked for."""

from __future__ import annotations

from addons.requests.object_read import ObjectRead
from kube.schemas.recoded import recoded
from kube.tables.cloud_cells import CloudCells
from kube.tables.server_table import TABLE, list_metadata, table
from kube.wire.codec_base import META_GROUP
from kube.wire.encoded_objects import Encoded
from kube.wire.json_fields import parse_object, write_json
from kube.wire.negotiation import METADATA_KIND, TABLE_KIND, Representation


def single_object(
    obj: Encoded, wanted: Representation, read: ObjectRead | None, cells: CloudCells | None
) -> Encoded:
    """Return the full object, its metadata, or a Table of one row; `cells` are the row's, if the cloud rendered
    them."""
    if wanted.kind == TABLE_KIND and read is not None:
        shown = parse_object(obj.raw)
        made = table([shown], obj.api_version, obj.kind, list_metadata(shown), read.include, wanted.version)
        if cells is not None:
            made |= {"columnDefinitions": cells.columns}
            made["rows"][0]["cells"] = cells.of(shown, made["rows"][0]["cells"])
        return Encoded(obj.codec, *TABLE, write_json(made))
    if wanted.kind == METADATA_KIND:
        raw = obj.codec.metadata_only(obj.raw, wanted.version)
        metadata = Encoded(obj.codec, f"{META_GROUP}/{wanted.version}", METADATA_KIND, raw)
        return recoded(metadata, wanted.encoding)
    return obj
