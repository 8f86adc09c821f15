"""Every field of a Node's and a Pod's metadata and status, in one table, with how JSON shows it.

From generated.proto and the tags of types.go in k8s.io/api/core/v1 and apimachinery's meta/v1, 1.36. Fields of later
servers are unknown to the protobuf runtime, which keeps them. `kube.wire.schema` has what filters read of these kinds.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from kube.wire.schema import ENTRY, MANY, ONE, message_classes

TIME = "Time"
QUANTITY = "QuantityEntry"
"""An entry of map<string, Quantity>; what ENTRY is for strings."""
MAPS = frozenset({ENTRY, QUANTITY})


class Shown(Enum):
    """When JSON has a field."""

    ALWAYS = "always"
    """No `omitempty`, or a struct: JSON shows zero, and an empty time as null."""
    FILLED = "filled"
    """`omitempty`: JSON leaves zero out. Protobuf has it on the wire all the same."""
    PRESENT = "present"
    """A pointer: JSON shows a zero that is on the wire."""


class StatusField(NamedTuple):
    number: int
    kind: str
    many: bool
    shown: Shown


def always(number: int, kind: str) -> StatusField:
    return StatusField(number, kind, False, Shown.ALWAYS)


def filled(number: int, kind: str) -> StatusField:
    return StatusField(number, kind, False, Shown.FILLED)


def present(number: int, kind: str) -> StatusField:
    return StatusField(number, kind, False, Shown.PRESENT)


def many(number: int, kind: str) -> StatusField:
    return StatusField(number, kind, True, Shown.FILLED)


def always_many(number: int, kind: str) -> StatusField:
    return StatusField(number, kind, True, Shown.ALWAYS)


# Message -> field (its JSON name), in the order of the server's JSON. managedFields stay unknown: no client writes
# them.
STATUS_TABLE: Mapping[str, Mapping[str, StatusField]] = {
    "Node": {"metadata": always(1, "ObjectMeta"), "status": always(3, "NodeStatus")},
    "Pod": {"metadata": always(1, "ObjectMeta"), "status": always(3, "PodStatus")},
    "ObjectMeta": {
        "name": filled(1, "string"),
        "generateName": filled(2, "string"),
        "namespace": filled(3, "string"),
        "selfLink": filled(4, "string"),
        "uid": filled(5, "string"),
        "resourceVersion": filled(6, "string"),
        "generation": filled(7, "int64"),
        "creationTimestamp": filled(8, TIME),
        "deletionTimestamp": present(9, TIME),
        "deletionGracePeriodSeconds": present(10, "int64"),
        "labels": many(11, ENTRY),
        "annotations": many(12, ENTRY),
        "ownerReferences": many(13, "OwnerReference"),
        "finalizers": many(14, "string"),
    },
    ENTRY: {"key": always(1, "string"), "value": always(2, "string")},
    QUANTITY: {"key": always(1, "string"), "value": always(2, "Quantity")},
    "Quantity": {"string": always(1, "string")},
    TIME: {"seconds": always(1, "int64"), "nanos": always(2, "int32")},
    "NodeStatus": {
        "capacity": many(1, QUANTITY),
        "allocatable": many(2, QUANTITY),
        "phase": filled(3, "string"),
        "conditions": many(4, "NodeCondition"),
        "addresses": many(5, "NodeAddress"),
        "daemonEndpoints": always(6, "NodeDaemonEndpoints"),
        "nodeInfo": always(7, "NodeSystemInfo"),
        "images": many(8, "ContainerImage"),
        "volumesInUse": many(9, "string"),
        "volumesAttached": many(10, "AttachedVolume"),
        "config": present(11, "NodeConfigStatus"),
        "runtimeHandlers": many(12, "NodeRuntimeHandler"),
        "features": present(13, "NodeFeatures"),
        "declaredFeatures": many(14, "string"),
    },
    "NodeCondition": {
        "type": always(1, "string"),
        "status": always(2, "string"),
        "lastHeartbeatTime": always(3, TIME),
        "lastTransitionTime": always(4, TIME),
        "reason": filled(5, "string"),
        "message": filled(6, "string"),
    },
    "NodeAddress": {
        "type": always(1, "string"),
        "address": always(2, "string"),
    },
    "NodeDaemonEndpoints": {
        "kubeletEndpoint": always(1, "DaemonEndpoint"),
    },
    "DaemonEndpoint": {
        "Port": always(1, "int32"),
    },
    "NodeSystemInfo": {
        "machineID": always(1, "string"),
        "systemUUID": always(2, "string"),
        "bootID": always(3, "string"),
        "kernelVersion": always(4, "string"),
        "osImage": always(5, "string"),
        "containerRuntimeVersion": always(6, "string"),
        "kubeletVersion": always(7, "string"),
        "kubeProxyVersion": always(8, "string"),
        "operatingSystem": always(9, "string"),
        "architecture": always(10, "string"),
        "swap": present(11, "NodeSwapStatus"),
    },
    "NodeSwapStatus": {
        "capacity": present(1, "int64"),
    },
    "ContainerImage": {
        "names": always_many(1, "string"),
        "sizeBytes": filled(2, "int64"),
    },
    "AttachedVolume": {
        "name": always(1, "string"),
        "devicePath": always(2, "string"),
    },
    "NodeConfigStatus": {
        "assigned": present(1, "NodeConfigSource"),
        "active": present(2, "NodeConfigSource"),
        "lastKnownGood": present(3, "NodeConfigSource"),
        "error": filled(4, "string"),
    },
    "NodeConfigSource": {
        "configMap": present(2, "ConfigMapNodeConfigSource"),
    },
    "ConfigMapNodeConfigSource": {
        "namespace": always(1, "string"),
        "name": always(2, "string"),
        "uid": filled(3, "string"),
        "resourceVersion": filled(4, "string"),
        "kubeletConfigKey": always(5, "string"),
    },
    "NodeRuntimeHandler": {
        "name": always(1, "string"),
        "features": present(2, "NodeRuntimeHandlerFeatures"),
    },
    "NodeRuntimeHandlerFeatures": {
        "recursiveReadOnlyMounts": present(1, "bool"),
        "userNamespaces": present(2, "bool"),
    },
    "NodeFeatures": {
        "supplementalGroupsPolicy": present(1, "bool"),
    },
    "PodStatus": {
        "observedGeneration": filled(17, "int64"),
        "phase": filled(1, "string"),
        "conditions": many(2, "PodCondition"),
        "message": filled(3, "string"),
        "reason": filled(4, "string"),
        "nominatedNodeName": filled(11, "string"),
        "hostIP": filled(5, "string"),
        "hostIPs": many(16, "HostIP"),
        "podIP": filled(6, "string"),
        "podIPs": many(12, "PodIP"),
        "startTime": present(7, TIME),
        "initContainerStatuses": many(10, "ContainerStatus"),
        "containerStatuses": many(8, "ContainerStatus"),
        "qosClass": filled(9, "string"),
        "ephemeralContainerStatuses": many(13, "ContainerStatus"),
        "resize": filled(14, "string"),
        "resourceClaimStatuses": many(15, "PodResourceClaimStatus"),
        "extendedResourceClaimStatus": present(18, "PodExtendedResourceClaimStatus"),
        "allocatedResources": many(19, QUANTITY),
        "resources": present(20, "ResourceRequirements"),
        "nodeAllocatableResourceClaimStatuses": many(21, "NodeAllocatableResourceClaimStatus"),
    },
    "PodCondition": {
        "type": always(1, "string"),
        "observedGeneration": filled(7, "int64"),
        "status": always(2, "string"),
        "lastProbeTime": always(3, TIME),
        "lastTransitionTime": always(4, TIME),
        "reason": filled(5, "string"),
        "message": filled(6, "string"),
    },
    "HostIP": {
        "ip": always(1, "string"),
    },
    "PodIP": {
        "ip": always(1, "string"),
    },
    "ContainerStatus": {
        "name": always(1, "string"),
        "state": always(2, "ContainerState"),
        "lastState": always(3, "ContainerState"),
        "ready": always(4, "bool"),
        "restartCount": always(5, "int32"),
        "image": always(6, "string"),
        "imageID": always(7, "string"),
        "containerID": filled(8, "string"),
        "started": present(9, "bool"),
        "allocatedResources": many(10, QUANTITY),
        "resources": present(11, "ResourceRequirements"),
        "volumeMounts": many(12, "VolumeMountStatus"),
        "user": present(13, "ContainerUser"),
        "allocatedResourcesStatus": many(14, "ResourceStatus"),
        "stopSignal": present(15, "string"),
    },
    "ContainerState": {
        "waiting": present(1, "ContainerStateWaiting"),
        "running": present(2, "ContainerStateRunning"),
        "terminated": present(3, "ContainerStateTerminated"),
    },
    "ContainerStateWaiting": {
        "reason": filled(1, "string"),
        "message": filled(2, "string"),
    },
    "ContainerStateRunning": {
        "startedAt": always(1, TIME),
    },
    "ContainerStateTerminated": {
        "exitCode": always(1, "int32"),
        "signal": filled(2, "int32"),
        "reason": filled(3, "string"),
        "message": filled(4, "string"),
        "startedAt": always(5, TIME),
        "finishedAt": always(6, TIME),
        "containerID": filled(7, "string"),
    },
    "ResourceRequirements": {
        "limits": many(1, QUANTITY),
        "requests": many(2, QUANTITY),
        "claims": many(3, "ResourceClaim"),
    },
    "ResourceClaim": {
        "name": always(1, "string"),
        "request": filled(2, "string"),
    },
    "VolumeMountStatus": {
        "name": always(1, "string"),
        "mountPath": always(2, "string"),
        "readOnly": filled(3, "bool"),
        "recursiveReadOnly": present(4, "string"),
        "volumeStatus": present(5, "VolumeStatus"),
    },
    "VolumeStatus": {
        "image": present(1, "ImageVolumeStatus"),
    },
    "ImageVolumeStatus": {
        "imageRef": filled(1, "string"),
    },
    "ContainerUser": {
        "linux": present(1, "LinuxContainerUser"),
    },
    "LinuxContainerUser": {
        "uid": always(1, "int64"),
        "gid": always(2, "int64"),
        "supplementalGroups": many(3, "int64"),
    },
    "ResourceStatus": {
        "name": always(1, "string"),
        "resources": many(2, "ResourceHealth"),
    },
    "ResourceHealth": {
        "resourceID": always(1, "string"),
        "health": filled(2, "string"),
        "message": present(6, "string"),
    },
    "PodResourceClaimStatus": {
        "name": always(1, "string"),
        "resourceClaimName": present(2, "string"),
    },
    "PodExtendedResourceClaimStatus": {
        "requestMappings": always_many(1, "ContainerExtendedResourceRequest"),
        "resourceClaimName": always(2, "string"),
    },
    "ContainerExtendedResourceRequest": {
        "containerName": always(1, "string"),
        "resourceName": always(2, "string"),
        "requestName": always(3, "string"),
    },
    "NodeAllocatableResourceClaimStatus": {
        "resourceClaimName": always(1, "string"),
        "containers": many(2, "string"),
        "resources": always_many(3, QUANTITY),
    },
    "OwnerReference": {
        "apiVersion": always(5, "string"),
        "kind": always(1, "string"),
        "name": always(3, "string"),
        "uid": always(4, "string"),
        "controller": present(6, "bool"),
        "blockOwnerDeletion": present(7, "bool"),
    },
}

_CLASSES = message_classes(
    {
        name: {field: (each.number, each.kind, MANY if each.many else ONE) for field, each in fields.items()}
        for name, fields in STATUS_TABLE.items()
    }
)


def new_message(name: str) -> Any:
    """An empty message of the table."""
    return _CLASSES[name]()


def parse_message(name: str, raw: bytes) -> Any:
    """The message in `raw`; raises ValueError when it is none."""
    try:
        return _CLASSES[name].FromString(raw)
    except DecodeError as error:
        raise ValueError(f"not a protobuf {name}: {error}") from error
