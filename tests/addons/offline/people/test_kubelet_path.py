"""kubelet's own paths, as kube-apiserver makes them of a client's request."""

from __future__ import annotations

import pytest

from addons.offline.people.kubelet_path import kubelet_target
from kube.errors import StatusError
from kube.json_type import Json
from kube.requests.request_info import parse_request

ONE: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}
TWO: Json = {
    "metadata": {"name": "p"},
    "spec": {
        "initContainers": [{"name": "init"}],
        "containers": [{"name": "main"}, {"name": "side"}],
        "ephemeralContainers": [{"name": "debug"}],
    },
}


def mapped(target: str, pod: Json = ONE) -> str:
    info = parse_request("GET", f"/api/v1/namespaces/a/pods/p/{target}")
    return kubelet_target(info, target.partition("?")[2], pod)


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("log", "/containerLogs/a/p/main"),
        (
            "log?follow=true&previous=false&timestamps=1&tailLines=5&sinceTime=2026-01-01T00%3A00%3A00Z",
            "/containerLogs/a/p/main?follow=true&timestamps=true&tailLines=5&sinceTime=2026-01-01T00%3A00%3A00Z",
        ),
        ("log?insecureSkipTLSVerifyBackend=true&pretty=true", "/containerLogs/a/p/main"),
        (
            "exec?command=sh&command=-c&command=echo+a%26b&stdin=true&stdout=true&tty=0",
            "/exec/a/p/main?input=1&output=1&command=sh&command=-c&command=echo+a%26b",
        ),
        ("attach?stderr=true&stdout=1&tty=true", "/attach/a/p/main?error=1&output=1&tty=1"),
        ("portforward", "/portForward/a/p"),
        ("portforward?ports=8080", "/portForward/a/p?port=8080"),
    ],
)
def test_paths_and_parameters_are_kubelets(target: str, wanted: str) -> None:
    found = mapped(target)
    assert (found.partition("?")[0], sorted(found.partition("?")[2].split("&"))) == (
        wanted.partition("?")[0],
        sorted(wanted.partition("?")[2].split("&")),
    )
    assert [each for each in found.split("&") if "command" in each] == [
        each for each in wanted.split("&") if "command" in each
    ], "in their order"


@pytest.mark.parametrize("name", ["init", "main", "side", "debug"])
def test_a_container_of_several_is_named(name: str) -> None:
    assert mapped(f"log?container={name}&container=main", TWO) == f"/containerLogs/a/p/{name}"


@pytest.mark.parametrize(
    ("query", "said"),
    [("", "choose one of: [init main side debug]"), ("?container=no", "no is not valid for pod p")],
)
def test_a_container_that_is_none_is_refused(query: str, said: str) -> None:
    with pytest.raises(StatusError) as refused:
        mapped(f"exec{query}", TWO)
    assert refused.value.code == 400
    assert said in refused.value.message
