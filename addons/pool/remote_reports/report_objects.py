"""A kubelet's reports as objects of the peer port: Pods with only the fields that endpoints need.

Pure. The object's resourceVersion is a version of the sending hub; the field `version` has the pod's version in the
cloud.
"""

from __future__ import annotations

import re
from ipaddress import ip_address

from addons.filters.inputs import PodReport
from addons.inputs.pod_reports import parse_pod_report
from kube.json_type import Json
from kube.peers import is_node_name
from kube.requests.request_info import ResourceType
from kube.requests.resource_versions import parse_version
from kube.store.store import Key
from kube.wire.codec_base import write_version
from kube.wire.fields import Edits
from kube.wire.json_fields import JsonFields, parse_object, write_json

POD_REPORTS = ResourceType("edgehub.io", "v1", "kubeletwords")
API_VERSION, KIND = "edgehub.io/v1", "KubeletWord"
MAX_REPORTS = 1_000
"""Pods on which a hub sends reports, and accepts them from each other hub: twice as many as the largest nodes have."""
MAX_REPORT_BYTES = 1024 * 1024
"""Maximum bytes of these reports as objects. The report of a pod with ten labels has 500 bytes."""

_TIME_OF_DAY = re.compile(r"[0-9]{2}:[0-9]{2}")


def report_object(key: Key, report: PodReport, version: int) -> bytes:
    """Return the object of a report, at a version of the sending hub."""
    metadata: Json = {
        "name": key[1],
        "namespace": key[0],
        "uid": report.uid,
        "resourceVersion": write_version(version),
        "labels": dict(report.labels),
    }
    if report.is_terminating:
        metadata["deletionTimestamp"] = "1970-01-01T00:00:00Z"  # the time is not needed
    ready = {"type": "Ready", "status": str(report.is_ready)}
    return write_json(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": metadata,
            "status": {"podIPs": [{"ip": address} for address in report.addresses], "conditions": [ready]},
            "version": write_version(report.version),
            "since": report.since,
        }
    )


def read_report(raw: bytes, node: str) -> PodReport:
    """Parse an object that another node's hub has sent; ValueError if it is no report on a pod of that node."""
    document = parse_object(raw)
    fields = JsonFields(document, Edits())
    since = fields.text("since")
    report = parse_pod_report(document, since if _TIME_OF_DAY.fullmatch(since) else "")
    version = parse_version(fields.text("version") or "0")
    if not (is_node_name(report.name) and report.uid):  # pods are named as nodes are
        raise ValueError("it names no pod")
    for address in report.addresses:
        ip_address(address)
    return report._replace(node=node, version=version)
