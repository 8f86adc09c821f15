"""Runs an exec credential plugin, the program that a kubeconfig names for its user, as client-go does."""

from __future__ import annotations

import base64
import datetime
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GROUP = "client.authentication.k8s.io"
API_VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
"""The API versions that client-go accepts since Kubernetes 1.24."""
TIMEOUT = 60.0
"""Seconds for one run. A plugin that prompts a person would wait forever."""
ERROR_LENGTH = 300
"""The most characters of a failed plugin's stderr in the log."""


@dataclass(frozen=True, slots=True)
class ExecCredentials:
    """The output of a plugin: a token, or a certificate and its key in PEM, or both."""

    token: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    expiry: float | None
    """When the credentials expire, in seconds since the epoch; None if they are valid until the server refuses
    them."""


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """One plugin, as a kubeconfig describes it."""

    command: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    api_version: str
    hint: str
    """The kubeconfig's hint how to install the program."""
    cluster: Mapping[str, Any] | None
    """The cluster information for the plugin; None if it does not need it."""

    def run(self) -> ExecCredentials:
        """Run the plugin for up to a minute. ValueError, in the operator's terms, if it returns no credentials."""
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {**os.environ, **self.environment, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            done = subprocess.run(  # noqa: S603 - the kubeconfig, which the operator chose, names the program
                [self.command, *self.arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT,
                check=False,
            )
        except FileNotFoundError:
            hint = f": {' '.join(self.hint.split())}" if self.hint else ""
            raise ValueError(f"exec plugin {self.command} is not there{hint}") from None
        except subprocess.TimeoutExpired:
            raise ValueError(f"exec plugin {self.command} did not end within {TIMEOUT:.0f} s") from None
        except OSError as error:
            raise ValueError(f"exec plugin {self.command}: {error.strerror}") from None
        if done.returncode:
            said = " ".join(done.stderr.decode(errors="replace").split())[-ERROR_LENGTH:]
            raise ValueError(
                f"exec plugin {self.command} ended with status {done.returncode}"
                + (f": {said}" if said else "")
            )
        try:
            return self._read(_parsed(done.stdout))
        except ValueError as error:
            raise ValueError(f"exec plugin {self.command}: {error}") from None

    def _read(self, answer: object) -> ExecCredentials:
        """Validate a plugin's output as client-go's `refreshCredsLocked` does."""
        if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
            raise ValueError("its output is not an ExecCredential")
        if answer.get("apiVersion") != self.api_version:
            raise ValueError(
                f"the kubeconfig says {self.api_version}, and it gave {answer.get('apiVersion')}"
            )
        status = answer.get("status")
        if not isinstance(status, dict):
            raise ValueError("its ExecCredential has no status")
        token, certificate, key = (
            str(status.get(name) or "").encode()
            for name in ("token", "clientCertificateData", "clientKeyData")
        )
        if bool(certificate) != bool(key):
            raise ValueError("it gave a certificate without its key, or a key alone")
        if not token and not certificate:
            raise ValueError("it gave neither a token nor a certificate")
        return ExecCredentials(token, certificate, key, _seconds(status.get("expirationTimestamp")))


def _parsed(answer: bytes) -> object:
    try:
        return json.loads(answer)
    except ValueError:
        return None


def parse_exec(
    section: object, folder: Path, cluster: Mapping[str, Any], authority: Callable[[], bytes]
) -> ExecPlugin:
    """Parse a user's section `exec`. A relative path is relative to `folder`, and `authority` reads the CA.

    ValueError for a section that client-go refuses, and for a plugin that must prompt a person.
    """
    if not isinstance(section, dict):
        raise ValueError("exec is not a mapping")
    version, command = section.get("apiVersion"), str(section.get("command") or "")
    if version not in API_VERSIONS:
        raise ValueError(f"exec.apiVersion must be one of {', '.join(API_VERSIONS)}, not {version!r}")
    if not command:
        raise ValueError("exec has no command")
    if section.get("interactiveMode") == "Always":
        raise ValueError("exec.interactiveMode is Always, and the hub has no terminal")
    if "/" in command:
        command = str(folder / command)
    arguments, variables = section.get("args") or [], section.get("env") or []
    if not isinstance(arguments, list):
        raise ValueError("exec.args is not a list")
    if not isinstance(variables, list) or not all(
        isinstance(each, dict) and each.get("name") for each in variables
    ):
        raise ValueError("exec.env is not a list of names and values")
    return ExecPlugin(
        command,
        tuple(map(str, arguments)),
        {str(variable["name"]): str(variable.get("value") or "") for variable in variables},
        version,
        str(section.get("installHint") or ""),
        _cluster_info(cluster, authority()) if section.get("provideClusterInfo") else None,
    )


def _cluster_info(cluster: Mapping[str, Any], authority: bytes) -> dict[str, Any]:
    """A kubeconfig's cluster in the form in which plugins get it."""
    names = ("server", "tls-server-name", "insecure-skip-tls-verify")
    info = {name: cluster[name] for name in names if cluster.get(name)}
    if authority:
        info["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == f"{GROUP}/exec":
            info["config"] = extension.get("extension")
    return info


def _seconds(timestamp: object) -> float | None:
    if not timestamp:
        return None
    moment = datetime.datetime.fromisoformat(str(timestamp))
    return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp()
