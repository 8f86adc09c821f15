"""The minimal protobuf schema: only the fields that filters, selectors and codecs read or write, from one table.

Everything else in a message is an unknown field to the protobuf runtime, which keeps it: nothing is lost on the
way. Numbers are those of the generated.proto files of k8s.io/api and k8s.io/apimachinery; the API never uses a
number twice.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

ONE = FieldDescriptorProto.LABEL_OPTIONAL
MANY = FieldDescriptorProto.LABEL_REPEATED

_SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
}

# An entry of map<string, string>. Maps are declared as they are on the wire, as repeated entries: the runtime's own
# maps lose the order and the unknown fields of an entry.
ENTRY = "StringEntry"

type Field = tuple[int, str, FieldDescriptorProto.Label.ValueType]
type Table = Mapping[str, Mapping[str, Field]]

# Message -> field (its JSON name) -> number, type, label. A bool that is no pointer in the Go type is always on the
# wire, while JSON leaves out a false one: readers of such a field treat None and False alike.
TABLE: Table = {
    # apimachinery: metadata and what every object has
    ENTRY: {"key": (1, "string", ONE), "value": (2, "string", ONE)},
    "ObjectMeta": {
        "name": (1, "string", ONE),
        "generateName": (2, "string", ONE),
        "namespace": (3, "string", ONE),
        "uid": (5, "string", ONE),
        "resourceVersion": (6, "string", ONE),
        "labels": (11, ENTRY, MANY),
        "annotations": (12, ENTRY, MANY),
        "managedFields": (17, "ManagedFieldsEntry", MANY),
    },
    "ManagedFieldsEntry": {"manager": (1, "string", ONE)},
    "ListMeta": {
        "resourceVersion": (2, "string", ONE),
        "continue": (3, "string", ONE),
        "remainingItemCount": (4, "int64", ONE),
    },
    "PartialObjectMetadata": {"metadata": (1, "ObjectMeta", ONE)},
    # apimachinery: Status
    "Status": {
        "status": (2, "string", ONE),
        "message": (3, "string", ONE),
        "reason": (4, "string", ONE),
        "details": (5, "StatusDetails", ONE),
        "code": (6, "int32", ONE),
    },
    "StatusDetails": {
        "name": (1, "string", ONE),
        "group": (2, "string", ONE),
        "kind": (3, "string", ONE),
        "causes": (4, "StatusCause", MANY),
        "retryAfterSeconds": (5, "int32", ONE),
        "uid": (6, "string", ONE),
    },
    "StatusCause": {
        "reason": (1, "string", ONE),
        "message": (2, "string", ONE),
        "field": (3, "string", ONE),
    },
    # apimachinery: envelope and watch. runtime.TypeMeta; metav1.TypeMeta numbers its two fields the other way round.
    "TypeMeta": {"apiVersion": (1, "string", ONE), "kind": (2, "string", ONE)},
    "Unknown": {"typeMeta": (1, "TypeMeta", ONE), "raw": (2, "bytes", ONE)},
    "RawExtension": {"raw": (1, "bytes", ONE)},
    "WatchEvent": {"type": (1, "string", ONE), "object": (2, "RawExtension", ONE)},
    # Not in the API: a message without known fields, and the parts of any list and any object that the codec reads
    # without parsing the rest.
    "Nothing": {},
    "AnyList": {"metadata": (1, "ListMeta", ONE), "items": (2, "bytes", MANY)},
    "AnyMetadata": {"metadata": (1, "bytes", MANY)},
    "Peek": {"metadata": (1, "PeekMeta", ONE)},
    "PeekMeta": {
        "name": (1, "string", ONE),
        "namespace": (3, "string", ONE),
        "resourceVersion": (6, "string", ONE),
        "labels": (11, ENTRY, MANY),
    },
    # core/v1
    "Service": {"metadata": (1, "ObjectMeta", ONE), "spec": (2, "ServiceSpec", ONE)},
    "ServiceSpec": {
        "ports": (1, "ServicePort", MANY),
        "selector": (2, ENTRY, MANY),
        "clusterIP": (3, "string", ONE),
        "type": (4, "string", ONE),
        "externalName": (10, "string", ONE),
        "publishNotReadyAddresses": (13, "bool", ONE),
        "clusterIPs": (18, "string", MANY),
        "ipFamilies": (19, "string", MANY),
        "loadBalancerClass": (21, "string", ONE),
    },
    "ServicePort": {
        "name": (1, "string", ONE),
        "protocol": (2, "string", ONE),
        "port": (3, "int32", ONE),
        "targetPort": (4, "IntOrString", ONE),
        "nodePort": (5, "int32", ONE),
    },
    # JSON has the number or the text itself.
    "IntOrString": {"intVal": (2, "int32", ONE)},
    "Endpoints": {"metadata": (1, "ObjectMeta", ONE), "subsets": (2, "EndpointSubset", MANY)},
    "EndpointSubset": {
        "addresses": (1, "EndpointAddress", MANY),
        "notReadyAddresses": (2, "EndpointAddress", MANY),
        "ports": (3, "CoreEndpointPort", MANY),
    },
    "EndpointAddress": {
        "ip": (1, "string", ONE),
        "targetRef": (2, "ObjectReference", ONE),
        "hostname": (3, "string", ONE),
        "nodeName": (4, "string", ONE),
    },
    "CoreEndpointPort": {
        "name": (1, "string", ONE),
        "port": (2, "int32", ONE),
        "protocol": (3, "string", ONE),
    },
    "Node": {"metadata": (1, "ObjectMeta", ONE), "status": (3, "NodeStatus", ONE)},
    "NodeStatus": {"conditions": (4, "NodeCondition", MANY), "addresses": (5, "NodeAddress", MANY)},
    "NodeCondition": {
        "type": (1, "string", ONE),
        "status": (2, "string", ONE),
        "reason": (5, "string", ONE),
        "message": (6, "string", ONE),
    },
    "NodeAddress": {"type": (1, "string", ONE), "address": (2, "string", ONE)},
    "Pod": {
        "metadata": (1, "ObjectMeta", ONE),
        "spec": (2, "PodSpec", ONE),
        "status": (3, "PodStatus", ONE),
    },
    "PodSpec": {
        "containers": (2, "Container", MANY),
        "serviceAccountName": (8, "string", ONE),
        "nodeName": (10, "string", ONE),
        "initContainers": (20, "Container", MANY),
    },
    "Container": {"name": (1, "string", ONE), "env": (7, "EnvVar", MANY)},
    "EnvVar": {"name": (1, "string", ONE), "value": (2, "string", ONE)},
    "PodStatus": {
        "phase": (1, "string", ONE),
        "hostIP": (5, "string", ONE),
        "podIP": (6, "string", ONE),
    },
    "ConfigMap": {
        "metadata": (1, "ObjectMeta", ONE),
        "data": (2, ENTRY, MANY),
        "immutable": (4, "bool", ONE),
    },
    "Secret": {
        "metadata": (1, "ObjectMeta", ONE),
        "type": (3, "string", ONE),
        "immutable": (5, "bool", ONE),
    },
    "Namespace": {"metadata": (1, "ObjectMeta", ONE), "status": (3, "NamespaceStatus", ONE)},
    "NamespaceStatus": {"phase": (1, "string", ONE)},
    "CoreEvent": {
        "metadata": (1, "ObjectMeta", ONE),
        "involvedObject": (2, "ObjectReference", ONE),
        "reason": (3, "string", ONE),
        "message": (4, "string", ONE),
        "count": (8, "int32", ONE),
        "type": (9, "string", ONE),
        "reportingComponent": (14, "string", ONE),
    },
    "ObjectReference": {
        "kind": (1, "string", ONE),
        "namespace": (2, "string", ONE),
        "name": (3, "string", ONE),
        "uid": (4, "string", ONE),
        "apiVersion": (5, "string", ONE),
    },
    # discovery.k8s.io
    "EndpointSlice": {
        "metadata": (1, "ObjectMeta", ONE),
        "endpoints": (2, "Endpoint", MANY),
        "ports": (3, "EndpointPort", MANY),
        "addressType": (4, "string", ONE),
    },
    "Endpoint": {
        "addresses": (1, "string", MANY),
        "conditions": (2, "EndpointConditions", ONE),
        "hostname": (3, "string", ONE),
        "targetRef": (4, "ObjectReference", ONE),
        "deprecatedTopology": (5, ENTRY, MANY),
        "nodeName": (6, "string", ONE),
        "zone": (7, "string", ONE),
    },
    "EndpointConditions": {
        "ready": (1, "bool", ONE),
        "serving": (2, "bool", ONE),
        "terminating": (3, "bool", ONE),
    },
    "EndpointPort": {"name": (1, "string", ONE), "protocol": (2, "string", ONE), "port": (3, "int32", ONE)},
    # In v1beta1 field 5 is named topology and field 7 is hints; servers dropped the version in 1.25.
    "EndpointSliceV1beta1": {
        "metadata": (1, "ObjectMeta", ONE),
        "endpoints": (2, "EndpointV1beta1", MANY),
        "ports": (3, "EndpointPort", MANY),
        "addressType": (4, "string", ONE),
    },
    "EndpointV1beta1": {
        "addresses": (1, "string", MANY),
        "conditions": (2, "EndpointConditions", ONE),
        "hostname": (3, "string", ONE),
        "targetRef": (4, "ObjectReference", ONE),
        "topology": (5, ENTRY, MANY),
        "nodeName": (6, "string", ONE),
    },
    # authentication.k8s.io
    "TokenRequest": {
        "metadata": (1, "ObjectMeta", ONE),
        "spec": (2, "TokenRequestSpec", ONE),
        "status": (3, "TokenRequestStatus", ONE),
    },
    "TokenRequestSpec": {"audiences": (1, "string", MANY)},
    "TokenRequestStatus": {"token": (1, "string", ONE), "expirationTimestamp": (2, "Time", ONE)},
    "Time": {"seconds": (1, "int64", ONE), "nanos": (2, "int32", ONE)},
    # coordination.k8s.io and events.k8s.io
    "Lease": {"metadata": (1, "ObjectMeta", ONE), "spec": (2, "LeaseSpec", ONE)},
    "LeaseSpec": {
        "holderIdentity": (1, "string", ONE),
        "leaseDurationSeconds": (2, "int32", ONE),
        "leaseTransitions": (5, "int32", ONE),
    },
    "Event": {
        "metadata": (1, "ObjectMeta", ONE),
        "reportingController": (4, "string", ONE),
        "action": (6, "string", ONE),
        "reason": (7, "string", ONE),
        "regarding": (8, "ObjectReference", ONE),
        "note": (10, "string", ONE),
        "type": (11, "string", ONE),
    },
}

# apiVersion and kind -> message. Every other kind has its metadata in field 1 too, and reads as nothing but that.
KINDS: Mapping[tuple[str, str], str] = {
    ("v1", "Service"): "Service",
    ("v1", "Endpoints"): "Endpoints",
    ("v1", "Node"): "Node",
    ("v1", "Pod"): "Pod",
    ("v1", "ConfigMap"): "ConfigMap",
    ("v1", "Secret"): "Secret",
    ("v1", "Namespace"): "Namespace",
    ("v1", "Event"): "CoreEvent",
    ("v1", "Status"): "Status",
    ("discovery.k8s.io/v1", "EndpointSlice"): "EndpointSlice",
    ("discovery.k8s.io/v1beta1", "EndpointSlice"): "EndpointSliceV1beta1",
    ("authentication.k8s.io/v1", "TokenRequest"): "TokenRequest",
    ("coordination.k8s.io/v1", "Lease"): "Lease",
    ("events.k8s.io/v1", "Event"): "Event",
}


class FieldKind(Enum):
    """The type of a field, by the methods of Fields."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"
    RAW = "raw"
    TEXTS = "texts"
    RAWS = "raws"
    MAPPING = "mapping"
    CHILD = "child"
    CHILDREN = "children"


class MessageType:
    """A message of the table: its fields' kinds, the types of its child messages, and its class made at run time."""

    __slots__ = ("_class", "children", "kinds", "name")

    def __init__(self, name: str, message_class: Any) -> None:
        self.name = name
        self.kinds: Mapping[str, FieldKind] = {
            field: _field_kind(kind, label) for field, (_, kind, label) in TABLE[name].items()
        }
        self.children: Mapping[str, MessageType] = {}
        self._class = message_class

    def new(self, **fields: object) -> Any:
        """A message with these fields; message fields are given as dicts."""
        return self._class(**fields)

    def parse(self, raw: bytes | memoryview) -> Any:
        """The message in `raw`; raises ValueError when it is none."""
        try:
            return self._class.FromString(raw)
        except DecodeError as error:
            raise ValueError(f"not a protobuf {self.name}: {error}") from error


def _field_kind(kind: str, label: FieldDescriptorProto.Label.ValueType) -> FieldKind:
    many = label == MANY
    match kind:
        case "string":
            return FieldKind.TEXTS if many else FieldKind.TEXT
        case "bytes":
            return FieldKind.RAWS if many else FieldKind.RAW
        case "bool":
            return FieldKind.FLAG
        case "int32" | "int64":
            return FieldKind.NUMBER
        case _ if kind == ENTRY:
            return FieldKind.MAPPING
        case _:
            return FieldKind.CHILDREN if many else FieldKind.CHILD


def message_classes(table: Table) -> Mapping[str, Any]:
    """A class for each message of a table."""
    pool = DescriptorPool()  # a private one: other packages' names cannot clash with ours
    pool.AddSerializedFile(_file(table).SerializeToString())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"edgehub.{name}")) for name in table}


def _file(table: Table) -> FileDescriptorProto:
    """A table as a proto2 file: proto2 knows presence, and takes text that is not UTF-8 as it is."""
    file = FileDescriptorProto(name="edgehub/kube.proto", package="edgehub", syntax="proto2")
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, label) in fields.items():
            if kind in _SCALARS:
                message.field.add(name=field, number=number, label=label, type=_SCALARS[kind])
            else:
                message.field.add(
                    name=field,
                    number=number,
                    label=label,
                    type=FieldDescriptorProto.TYPE_MESSAGE,
                    type_name=f".edgehub.{kind}",
                )
    return file


def _build() -> Mapping[str, MessageType]:
    types = {name: MessageType(name, made) for name, made in message_classes(TABLE).items()}
    for name, message_type in types.items():
        message_type.children = {
            field: types[kind] for field, (_, kind, _) in TABLE[name].items() if kind in types
        }
    return MappingProxyType(types)


MESSAGES = _build()


def message_type_of(api_version: str, kind: str) -> MessageType:
    """The message of a kind; one with metadata alone for a kind that the table does not have."""
    return MESSAGES[KINDS.get((api_version, kind), "PartialObjectMetadata")]
