"""A pod without a kubelet: the container in a pod's spec, with its exact command line and environment."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from tests.cloud.processes import Process
from tests.cloud.real import RealCloud
from tests.deploy.support import sandbox
from tests.support.relay import connect_file, end, file_listener, relay

API = f"https://{sandbox.LOOPBACK}:{sandbox.API_PORT}"
"""The API server's URL inside a pod."""
START_TIMEOUT = 60.0
"""Seconds to readiness; 3 on idle cores."""


class Pod:
    """The first container in a pod's spec; a context manager in which it runs. Its volumes are empty except for
    `files`. `defaults` is the environment of the image. Without a `root`, which is an image's, the container has the
    machine's files. Either is read-only, and the network is the container's own; the API server is on its loopback, at
    `API`."""

    def __init__(
        self,
        cloud: RealCloud,
        pod: Mapping[str, Any],
        folder: Path,
        defaults: Mapping[str, str],
        root: Path | None = None,
        files: Mapping[str, Path] | None = None,
    ) -> None:
        self._folder = folder
        self._listener = file_listener(folder / "api")
        relay(self._listener, lambda: socket.create_connection((cloud.host, cloud.port)))
        container = pod["spec"]["containers"][0]
        environment = {
            **defaults,
            "KUBERNETES_SERVICE_HOST": sandbox.LOOPBACK,
            "KUBERNETES_SERVICE_PORT": str(sandbox.API_PORT),
            **{each["name"]: each["value"] for each in container.get("env", [])},
        }
        # Any user of a container may write to an emptyDir; a folder of the node belongs to root.
        shared = {each["name"] for each in pod["spec"].get("volumes", []) if "emptyDir" in each}
        files = files or {}
        volumes = [
            [each["mountPath"], "1777" if each["name"] in shared else "0755"]
            for each in container.get("volumeMounts", [])
            if each["mountPath"] not in files
        ]
        user = pod["spec"].get("securityContext", container["securityContext"])["runAsUser"]
        spec = {
            "command": [*container["command"], *container.get("args", [])],
            "environment": [f"{name}={value}" for name, value in environment.items()],
            "root": str(root or ""),
            "user": user,
            "account": str(self._account(cloud, pod)),
            "files": [[str(source), target] for target, source in files.items()],
            "volumes": volumes,
            "sockets": str(folder),
            "admin_port": admin_port(container),
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        self._process: Process | None = None

    def _account(self, cloud: RealCloud, pod: Mapping[str, Any]) -> Path:
        """Make a folder with the files that kubelet gives to a pod with a service account."""
        folder = self._folder / "account"
        folder.mkdir()
        if name := pod["spec"].get("serviceAccountName"):
            namespace = pod["metadata"]["namespace"]
            (folder / "token").write_text(cloud.token(namespace, name))
            (folder / "ca.crt").write_bytes(cloud.authority.certificate)
            (folder / "namespace").write_text(namespace)
        return folder

    def __enter__(self) -> Self:
        program = [sys.executable, "-m", "tests.deploy.support.sandbox"]
        command = [*isolated(), *program, str(self._folder / "spec.json")]
        repository = str(Path(__file__).parents[3])
        self._process = Process("pod", command, self._folder, env={"PYTHONPATH": repository})
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.running:
            self._process.stop()
        end(self._listener)

    def wait_until_ready(self) -> None:
        """Wait until `/readyz` of its admin port succeeds."""
        assert self._process is not None
        self._process.wait_until(
            lambda: self.status("/readyz?exclude=node") == 200, "become ready", START_TIMEOUT
        )

    def wait_for_line(self, pattern: str) -> str:
        """Return the first line of its log that matches the pattern."""
        assert self._process is not None
        return self._process.wait_for_line(pattern, START_TIMEOUT)

    def status(self, path: str) -> int:
        """Return the status of a GET on the admin port; 0 without a response."""
        connection = http.client.HTTPConnection(sandbox.LOOPBACK, timeout=10)
        try:
            connection.sock = connect_file(self._folder / "admin")
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()


def pod_of(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod as the controller of a Deployment creates it."""
    template = deployment["spec"]["template"]
    return {"metadata": {"namespace": deployment["metadata"]["namespace"]}, "spec": template["spec"]}


def admin_port(container: Mapping[str, Any]) -> int:
    """Return the port of the liveness probe."""
    port = container["livenessProbe"]["httpGet"]["port"]
    named = {each["name"]: each["containerPort"] for each in container.get("ports", [])}
    return int(named.get(port, port))


def isolated() -> list[str]:
    """Return the prefix of commands with private mounts and network; skip the test if the machine does not permit
    them."""
    own = ["unshare", "--mount", "--net"]
    if os.geteuid() != 0:
        own += ["--user", "--map-root-user"]
    try:
        subprocess.run([*own, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine allows no mount and network namespaces")
    return own
