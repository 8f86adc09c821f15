"""Sample objects that are built in either encoding, and the inputs that filters read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from addons.filters.inputs import HubAddress, PodReport
from addons.filters.verdict import Outcome
from addons.rules.filter_trial import GivenInputs, StaticPodReports
from kube.requests.node_pools import POOL_LABEL
from kube.wire.api_objects import ApiObject, decode_object
from kube.wire.encoding import Encoding
from kube.wire.fields import Fields

MAPPINGS = frozenset({"labels", "annotations", "data", "topology"})
"""The fields of the samples that are string maps; every other JSON object is a message."""

UNKNOWN_JSON = '"fromTheFuture":{"kept":[1,2.50,"\\u00e9"]}'
UNKNOWN_PROTOBUF = b"\xfa\x3e\x04kept"
"""Field 1007, a string: no message of the schema has this number."""

Content = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """An object of the API, as its JSON is without apiVersion and kind."""

    api_version: str
    kind: str
    content: Content

    def build(self, encoding: Encoding) -> ApiObject:
        """Build the object that a filter gets: decoded from bytes, with a field that the schema does not have."""
        if encoding is Encoding.JSON:
            text = json.dumps({"apiVersion": self.api_version, "kind": self.kind, **self.content})
            return decode_object(
                encoding, self.api_version, self.kind, f"{text[:-1]},{UNKNOWN_JSON}}}".encode()
            )
        obj = decode_object(encoding, self.api_version, self.kind, b"")
        _write(obj.fields, self.content)
        return decode_object(encoding, self.api_version, self.kind, obj.encode() + UNKNOWN_PROTOBUF)


def decode_again(obj: ApiObject) -> ApiObject:
    """Return the object as a client decodes it."""
    return decode_object(obj.encoding, obj.api_version, obj.kind, obj.encode())


def has_unknown(obj: ApiObject) -> bool:
    """Return True if the field unknown to the schema is unchanged, byte for byte."""
    unknown = json.loads(f"{{{UNKNOWN_JSON}}}") if obj.encoding is Encoding.JSON else UNKNOWN_PROTOBUF
    if isinstance(unknown, bytes):
        return unknown in obj.encode()
    found = json.loads(obj.encode())
    return all(found.get(name) == value for name, value in unknown.items())


def _write(fields: Fields, content: Content) -> None:
    for name, value in content.items():
        if name in MAPPINGS:
            fields.set_mapping(name, value)
        elif isinstance(value, dict):
            _write(fields.child(name), value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for item in value:
                _write(fields.add(name), item)
        elif isinstance(value, list):
            if value:  # protobuf does not encode an empty list
                fields.set_texts(name, value)
        else:
            fields.set(name, value)


def metadata(name: str, namespace: str, **more: Mapping[str, str] | None) -> Content:
    return {"name": name, "namespace": namespace, "resourceVersion": "7"} | {
        k: dict(v) for k, v in more.items() if v
    }


def service(
    name: str = "web",
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    ports: Iterable[Content] = ({"name": "http", "port": 80},),
    **spec: Any,
) -> Sample:
    content = {"metadata": metadata(name, namespace, annotations=annotations)}
    return Sample("v1", "Service", content | {"spec": {"ports": list(ports), **spec}})


def endpoint(address: str, node: str | None, ready: bool | None = True) -> Content:
    """Return an endpoint of a v1 slice."""
    found: Content = {"addresses": [address]}
    if ready is not None:
        found["conditions"] = {"ready": ready}
    return found if node is None else found | {"nodeName": node}


def old_endpoint(address: str, hostname: str | None, node: str | None = None) -> Content:
    """Return an endpoint of a v1beta1 slice, with the node in its topology."""
    found: Content = {"addresses": [address], "conditions": {"ready": True}}
    if hostname is not None:
        found["topology"] = {"kubernetes.io/hostname": hostname}
    return found if node is None else found | {"nodeName": node}


def endpoint_slice(
    endpoints: Iterable[Content],
    name: str = "web-abc",
    service_name: str | None = "web",
    version: str = "v1",
    family: str = "IPv4",
    annotations: Mapping[str, str] | None = None,
    ports: Iterable[Content] = ({"name": "http", "protocol": "TCP", "port": 8080},),
) -> Sample:
    labels = None if service_name is None else {"kubernetes.io/service-name": service_name}
    content: Content = {"metadata": metadata(name, "default", labels=labels, annotations=annotations)}
    content |= {"addressType": family, "ports": list(ports)}
    if found := list(endpoints):
        content["endpoints"] = found
    return Sample(f"discovery.k8s.io/{version}", "EndpointSlice", content)


def subset(ready: Mapping[str, str | None], not_ready: Mapping[str, str | None] | None = None) -> Content:
    """Return a subset of an Endpoints object, from addresses and their nodes."""
    found: Content = {"ports": [{"name": "http", "protocol": "TCP", "port": 8080}]}
    for name, nodes in (("addresses", ready), ("notReadyAddresses", not_ready)):
        if nodes:
            found[name] = [{"ip": ip} | ({} if n is None else {"nodeName": n}) for ip, n in nodes.items()]
    return found


def endpoints(*subsets: Content, name: str = "web", annotations: Mapping[str, str] | None = None) -> Sample:
    content: Content = {"metadata": metadata(name, "default", annotations=annotations)}
    return Sample("v1", "Endpoints", content | ({"subsets": list(subsets)} if subsets else {}))


def addresses_of(obj: ApiObject) -> list[str]:
    """Return every remaining address, the ready ones of a subset before the others."""
    if obj.kind == "EndpointSlice":
        return [address for e in obj.fields.children("endpoints") for address in e.texts("addresses")]
    return [
        address.text("ip")
        for subset in obj.fields.children("subsets")
        for name in ("addresses", "notReadyAddresses")
        for address in subset.children(name)
    ]


WEB = ("default", "web")
"""A Service: its namespace and name."""
QUESTIONS = frozenset(name for name, value in vars(GivenInputs).items() if callable(value) and name[0] != "_")


@dataclass(frozen=True)
class World(GivenInputs):
    """Inputs of a test, which record the reads."""

    node_name: str = "n1"
    hub: HubAddress = HubAddress(("169.254.2.1", "fd00::2:1"), 10268)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: list[PodReport] = field(default_factory=list)
    """Reports by nodes other than the pod's node."""
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in QUESTIONS:
            return found

        def ask(*about: str) -> Any:
            self.asked.append((name, *about))
            return found(*about)

        return ask

    def pod_reports(self, namespace: str) -> StaticPodReports:
        return StaticPodReports(self.pod_statuses.get(namespace, ()), self.refused)


def pooled_world(annotations: Mapping[str, str]) -> World:
    """Return inputs with Service default/web with these annotations; n1 (this node) and n2 in pool p1, n3 in p2, n4 in
    none."""
    pools = {"p1": frozenset({"n1", "n2"}), "p2": frozenset({"n3"})}
    nodes = {node: {POOL_LABEL: pool} for pool, members in pools.items() for node in members}
    return World(services={WEB: dict(annotations)}, nodes=nodes | {"n4": {}}, pools=pools, pool="p1")


class Notes:
    """A note function that records the verdicts."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str]] = []

    def __call__(self, subject: str, outcome: Outcome, reason: str) -> None:
        self.lines.append((subject, str(outcome), reason))
