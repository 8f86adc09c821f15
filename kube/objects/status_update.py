"""Applies a PATCH or PUT of nodes/status or pods/status to an object in either encoding, as kube-apiserver does.

Only labels, annotations and status change. All else stays, unknown fields and resourceVersion included. The cloud may
still refuse the same write when the hub replays it.
"""

from collections import deque

from kube.errors import (
    Cause,
    StatusError,
    bad_request,
    invalid,
    invalid_fields,
    method_not_supported,
    unsupported_media_type,
)
from kube.json_type import Json, same_json
from kube.message_table import META
from kube.objects.object_patches import apply_patch
from kube.objects.status_json import canonical
from kube.objects.status_message import CORE, parse_message, read_message, write_message
from kube.objects.strategic_merge import merge_keys_of
from kube.requests.quoting import quoted
from kube.wire.encoding import Encoding
from kube.wire.json_fields import parse_object, write_json
from kube.wire.protobuf_codec import open_envelope

_TYPES = {("v1", "Node"): f"{CORE}.NodeStatus", ("v1", "Pod"): f"{CORE}.PodStatus"}
_METADATA = f"{META}.ObjectMeta"
WRITTEN = ("labels", "annotations")
"""Metadata that a status write may change."""


def status_document(encoding: Encoding, api_version: str, kind: str, raw: bytes) -> Json:
    """Convert an object to JSON. Of a protobuf object: only its type, metadata without managedFields, and status.

    ValueError if the bytes are malformed, LookupError for a kind without a schema.
    """
    status_type = _status_type(api_version, kind)
    if encoding is Encoding.JSON:
        return parse_object(raw)
    message = parse_message(f"{CORE}.{kind}", raw)
    return {
        "kind": kind,
        "apiVersion": api_version,
        "metadata": read_message(_METADATA, message.metadata),
        "status": read_message(status_type, message.status),
    }


def with_status(encoding: Encoding, api_version: str, kind: str, raw: bytes, document: Json) -> bytes:
    """Return the object with the labels, annotations and status of a document.

    Returns the same bytes if nothing changes. ValueError if a value has the wrong type.
    """
    status_type = _status_type(api_version, kind)
    sent = _metadata(document)
    wanted = canonical(_METADATA, {name: sent.get(name) for name in WRITTEN}, "metadata")
    status = canonical(status_type, document.get("status"), "status")
    if encoding is Encoding.JSON:
        return _with_json(raw, wanted, status)
    message = parse_message(f"{CORE}.{kind}", raw)
    before = read_message(_METADATA, message.metadata)
    metadata = {name: value for name, value in before.items() if name not in WRITTEN} | wanted
    if before == metadata and read_message(status_type, message.status) == status:
        return raw
    write_message(_METADATA, message.metadata, metadata, merge_keys_of(kind), "metadata")
    write_message(status_type, message.status, status, merge_keys_of(kind), "status")
    written: bytes = message.SerializeToString()
    return written


def updated(
    encoding: Encoding, api_version: str, kind: str, raw: bytes, method: str, content_type: str, body: bytes
) -> bytes:
    """Return the object after a PATCH or PUT of its status, with the same resourceVersion.

    StatusError 400, 413, 415 or 422 for an invalid body, and for a patch of the uid; 409 for a PUT with another uid,
    and for another resourceVersion than the object's. ValueError for a malformed object, LookupError for a kind without
    a schema.
    """
    document = status_document(encoding, api_version, kind, raw)
    if method == "PATCH":
        wanted = apply_patch(content_type, document, body, kind)
    elif method == "PUT":
        wanted = _sent(content_type, body, api_version, kind)
    else:
        raise method_not_supported(f"{method} is not supported on a status")
    _check_identity(kind, document, wanted, is_put=method == "PUT")
    try:
        status_type = _status_type(api_version, kind)
        status = canonical(status_type, wanted.get("status"), "status")
        before = canonical(status_type, document.get("status"), "status")
        prepared = _prepared_node(status, before) if kind == "Node" else _prepared_pod(status, before)
        return with_status(encoding, api_version, kind, raw, {**wanted, "status": prepared})
    except ValueError as error:
        raise (bad_request if method == "PUT" else invalid)(str(error)) from error


def _status_type(api_version: str, kind: str) -> str:
    try:
        return _TYPES[api_version, kind]
    except KeyError as error:
        raise LookupError(f"no status of {api_version} {kind} is known") from error


def _with_json(raw: bytes, wanted: Json, status: Json) -> bytes:
    before = parse_object(raw)
    metadata = {name: value for name, value in _metadata(before).items() if name not in WRITTEN} | wanted
    after = {**before, "metadata": metadata, "status": status}
    return raw if same_json(before, after) else write_json(after)


def _sent(content_type: str, body: bytes, api_version: str, kind: str) -> Json:
    """Parse the object in the body of a PUT."""
    media_type = content_type.partition(";")[0].strip().lower() or Encoding.JSON
    if media_type not in list(Encoding):
        raise unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(Encoding)
        )
    try:
        if media_type == Encoding.PROTOBUF:
            sent_version, sent_kind, raw = open_envelope(body)
            sent = status_document(Encoding.PROTOBUF, api_version, kind, raw)
            sent |= {"apiVersion": sent_version, "kind": sent_kind}
        else:
            sent = parse_object(body)
        # An object may omit its type, which the request's path implies.
        for name, expected in (("apiVersion", api_version), ("kind", kind)):
            if sent.get(name) not in (None, "", expected):
                raise ValueError(f"its {name} is {sent[name]}")
        return sent
    except ValueError as error:
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): {error}") from error


def _check_identity(kind: str, document: Json, wanted: Json, *, is_put: bool) -> None:
    """Refuse a write that names another object, or another resourceVersion of this one."""
    old, new = _metadata(document), _metadata(wanted)
    name = old.get("name")
    if new.get("name") != name:
        raise bad_request(
            f"the name of the object ({new.get('name') or ''}) does not match the name on the URL ({name})"
        )
    # kube-apiserver drops the namespace of a cluster-scoped object.
    if old.get("namespace") and new.get("namespace") not in (None, "", old["namespace"]):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if new.get("uid") and new["uid"] != old.get("uid"):
        if not is_put:
            why = f"Invalid value: {quoted(str(new['uid']))}: field is immutable"
            raise invalid_fields("", kind, str(name), [Cause("FieldValueInvalid", "metadata.uid", why)])
        raise _conflict(
            kind,
            name,
            f"Precondition failed: UID in precondition: {new['uid']}, UID in object meta: {old.get('uid')}",
        )
    if new.get("resourceVersion") and new["resourceVersion"] != old.get("resourceVersion"):
        raise _conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )


def _metadata(document: Json) -> Json:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _conflict(kind: str, name: object, why: str) -> StatusError:
    resource = f"{kind.lower()}s"
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {resource} "{name}": {why}',
        {"name": name, "kind": resource},
    )


def _prepared_node(status: Json, before: Json) -> Json:
    """Complete a Node's status as kube-apiserver does (SetDefaults_NodeStatus, nodeStatusStrategy)."""
    prepared = dict(status)
    if "capacity" in status:
        prepared.setdefault("allocatable", status["capacity"])
    if "config" not in before:
        prepared.pop("config", None)
    return prepared


def _prepared_pod(status: Json, before: Json) -> Json:
    """Complete a Pod's status as kube-apiserver does (conversion of podIP, podStatusStrategy)."""
    prepared = dict(status)
    for name in ("qosClass", "observedGeneration"):
        if name not in prepared and name in before:
            prepared[name] = before[name]
    if "conditions" in prepared:
        prepared["conditions"] = _with_generations(prepared["conditions"], before.get("conditions", []))
    # podIP takes precedence over podIPs: an old kubelet sends podIP alone.
    addresses = prepared.get("podIPs", [])
    if prepared.get("podIP") and (not addresses or addresses[0]["ip"] != prepared["podIP"]):
        prepared["podIPs"] = [{"ip": prepared["podIP"]}]
    elif addresses:
        prepared["podIP"] = addresses[0]["ip"]
    return prepared


def _with_generations(conditions: list[Json], before: list[Json]) -> list[Json]:
    """Set the previous observedGeneration on conditions that have none."""
    known: dict[str, deque[int]] = {}
    for condition in before:
        known.setdefault(condition["type"], deque()).append(condition.get("observedGeneration", 0))
    merged = []
    for condition in conditions:
        generations = known.get(condition["type"])
        generation = generations.popleft() if generations else 0
        merged.append({"observedGeneration": generation, **condition} if generation else condition)
    return merged
