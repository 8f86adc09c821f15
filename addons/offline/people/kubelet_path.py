"""Maps a request for a pod's logs or streams to kubelet's paths, as kube-apiserver does (registry/core/pod). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode

from kube.errors import bad_request
from kube.json_type import Json
from kube.requests.query import parse_bool
from kube.requests.request_info import RequestInfo

PATHS = {"log": "containerLogs", "exec": "exec", "attach": "attach", "portforward": "portForward"}
"""kubelet's first step, by the subresource."""
FLAGS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "log": {parameter: (parameter, "true") for parameter in ("follow", "previous", "timestamps")},
    "exec": {
        "stdin": ("input", "1"),
        "stdout": ("output", "1"),
        "stderr": ("error", "1"),
        "tty": ("tty", "1"),
    },
    "portforward": {},
}
"""Parameters that are true or false: kubelet's name, and how it writes a true one."""
TEXTS: Mapping[str, Mapping[str, str]] = {
    "log": {
        parameter: parameter
        for parameter in ("sinceSeconds", "sinceTime", "tailLines", "limitBytes", "stream")
    },
    "exec": {"command": "command"},
    "portforward": {"ports": "port"},
}
"""Parameters that go on as they are: kubelet's name."""
CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


def kubelet_target(info: RequestInfo, query: str, pod: Json) -> str:
    """kubelet's path and query for a request of a pod; StatusError 400 as kube-apiserver's."""
    kind = "exec" if info.subresource == "attach" else info.subresource
    pairs = parse_qsl(query, keep_blank_values=True)
    given = dict(reversed(pairs))  # the first one of a name counts
    sent = [FLAGS[kind][name] for name, value in given.items() if name in FLAGS[kind] and parse_bool(value)]
    sent += [(TEXTS[kind][name], value) for name, value in pairs if name in TEXTS[kind]]
    steps = [PATHS[info.subresource], info.namespace, info.name]
    if kind != "portforward":
        steps.append(_container(given.get("container", ""), pod))
    return "/" + "/".join(quote(step, safe="") for step in steps) + (f"?{urlencode(sent)}" if sent else "")


def _container(wanted: str, pod: Json) -> str:
    """The container that is meant: of several the client must name one."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    if not wanted and len(spec["containers"]) == 1:
        return str(spec["containers"][0]["name"])
    names = [str(container["name"]) for kind in CONTAINERS for container in spec.get(kind) or ()]
    if not wanted:
        choices = " ".join(names)
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{choices}]")
    if wanted not in names:
        raise bad_request(f"container {wanted} is not valid for pod {name}")
    return wanted
