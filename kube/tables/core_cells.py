"""The rows of kinds of core, discovery and coordination, except pods (printers.go of Kubernetes 1.36)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kube.json_type import Json
from kube.tables.cells import NONE, age, is_true, labels, shortened, since

ROLE_PREFIX, ROLE = "node-role.kubernetes.io/", "kubernetes.io/role"
MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def name_of(obj: Json) -> str:
    name: str = obj["metadata"].get("name", "")
    return name


def service_cells(service: Json) -> list[Any]:
    spec = service.get("spec") or {}
    addresses = spec.get("clusterIPs") or [NONE]
    ports = ",".join(map(_service_port, spec.get("ports") or ())) or NONE
    external = _external(spec, service.get("status") or {})
    return [
        *(name_of(service), spec.get("type", ""), addresses[0], external, ports, age(service)),
        labels(spec.get("selector")),
    ]


def _service_port(port: Json) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port', 0)}{node_port}/{port.get('protocol', '')}"


def _external(spec: Json, status: Json) -> str:
    own: list[str] = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(own) or NONE
        case "LoadBalancer":
            ingress = (status.get("loadBalancer") or {}).get("ingress") or ()
            given = sorted({address.get("ip") or address.get("hostname") or "" for address in ingress} - {""})
            return ",".join((*given, *own)) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
    return "<unknown>"


def endpoints_cells(endpoints: Json) -> list[Any]:
    subsets = endpoints.get("subsets") or ()
    text = shortened(_addresses(subsets), "") if subsets else NONE
    return [name_of(endpoints), text, age(endpoints)]


def _addresses(subsets: Any) -> Iterator[str]:
    for subset in subsets:
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        if not ports:
            yield from addresses
        for port in ports:
            yield from (f"{_host(address)}:{port.get('port', 0)}" for address in addresses)


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def slice_cells(slice_: Json) -> list[Any]:
    ports = (_slice_port(port) for port in slice_.get("ports") or ())
    addresses = (one for endpoint in slice_.get("endpoints") or () for one in endpoint.get("addresses") or ())
    return [
        name_of(slice_),
        slice_.get("addressType", ""),
        shortened(ports),
        shortened(addresses),
        age(slice_),
    ]


def _slice_port(port: Json) -> str:
    if port.get("port") is not None:
        return str(port["port"])
    return str(port["name"]) if port.get("name") is not None else "*"


def node_cells(node: Json) -> list[Any]:
    status, info = node.get("status") or {}, (node.get("status") or {}).get("nodeInfo") or {}
    conditions = status.get("conditions") or ()
    is_known = any(condition.get("type") == "Ready" for condition in conditions)
    states = [("Ready" if is_true(conditions, "Ready") else "NotReady") if is_known else "Unknown"]
    if (node.get("spec") or {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    addresses: dict[str, str] = {}
    for address in status.get("addresses") or ():
        addresses.setdefault(address.get("type", ""), address.get("address", ""))
    unknown = "<unknown>"
    architecture = f" ({info['architecture']})" if info.get("architecture") else ""
    return [
        name_of(node),
        ",".join(states),
        ",".join(sorted(set(_roles(node["metadata"].get("labels") or {})))) or NONE,
        age(node),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        info.get("osImage") or unknown,
        (info.get("kernelVersion") or unknown) + architecture,
        info.get("containerRuntimeVersion") or unknown,
    ]


def _roles(of_node: Json) -> Iterator[str]:
    for label, value in of_node.items():
        if label.startswith(ROLE_PREFIX) and label != ROLE_PREFIX:
            yield label.removeprefix(ROLE_PREFIX)
        elif label == ROLE and value:
            yield value


def event_cells(event: Json) -> list[Any]:
    """The cells of an Event of the core group, or of events.k8s.io, whose fields have other names."""
    about = event.get("involvedObject") or event.get("regarding") or {}
    source = event.get("source") or event.get("deprecatedSource") or {}
    series = event.get("series") or {}
    first = since(
        event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    )
    last_time = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp")
    last = since(last_time) if last_time else first
    count = event.get("count") or event.get("deprecatedCount") or 1
    if series:
        last, count = since(series.get("lastObservedTime")), series.get("count", 0)
    component = source.get("component") or event.get("reportingComponent") or event.get("reportingController")
    instance = source.get("host") or event.get("reportingInstance")
    name = about.get("name")
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        about.get("kind", "").lower() + (f"/{name}" if name else ""),
        about.get("fieldPath", ""),
        (component or "") + (f", {instance}" if instance else ""),
        (event.get("message") or event.get("note") or "").strip(),
        first,
        count,
        name_of(event),
    ]


def namespace_cells(namespace: Json) -> list[Any]:
    return [name_of(namespace), (namespace.get("status") or {}).get("phase", ""), age(namespace)]


def secret_cells(secret: Json) -> list[Any]:
    return [name_of(secret), secret.get("type", ""), len(secret.get("data") or ()), age(secret)]


def config_map_cells(config_map: Json) -> list[Any]:
    count = len(config_map.get("data") or ()) + len(config_map.get("binaryData") or ())
    return [name_of(config_map), count, age(config_map)]


def lease_cells(lease: Json) -> list[Any]:
    return [name_of(lease), (lease.get("spec") or {}).get("holderIdentity") or "", age(lease)]


def aged_cells(obj: Json) -> list[Any]:
    """The cells of a kind with only name and age, or with columns that the hub does not know."""
    return [name_of(obj), age(obj)]


def claim_cells(claim: Json) -> list[Any]:
    spec, status, metadata = claim.get("spec") or {}, claim.get("status") or {}, claim["metadata"]
    is_bound = bool(spec.get("volumeName"))
    modes = status.get("accessModes") or ()
    classes = metadata.get("annotations") or {}
    return [
        name_of(claim),
        "Terminating" if metadata.get("deletionTimestamp") else status.get("phase", ""),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if is_bound else "",
        ",".join(short for mode, short in MODES.items() if mode in modes) if is_bound else "",
        classes.get(CLASS_ANNOTATION, spec.get("storageClassName") or ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        age(claim),
        spec.get("volumeMode") or "<unset>",
    ]
