"""The chart as Helm renders it, as objects."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.cloud.real import RealCloud

CHART = Path(__file__).parents[3] / "deploy" / "chart"

type Values = Mapping[str, Any]
type Rendered = dict[tuple[str, str], dict[str, Any]]
"""Objects by kind and name."""


def template(
    helm: Path, values: Values, folder: Path, namespace: str = "kube-system", *flags: str
) -> Rendered:
    """Return the output of `helm template` for values; subprocess.CalledProcessError if Helm refuses them."""
    done = subprocess.run(
        [
            helm,
            "template",
            "edgehub",
            CHART,
            "--namespace",
            namespace,
            "--values",
            written(values, folder),
            *flags,
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return {
        (each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout) if each
    }


def written(values: Values, folder: Path) -> Path:
    """Write a file with values, as JSON, which is valid YAML."""
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    return file


class Release:
    """The release `edgehub` in a namespace of a cluster. No command waits for pods, as no kubelet runs them."""

    def __init__(self, helm: Path, cloud: RealCloud, namespace: str, folder: Path) -> None:
        self._helm = helm
        self._cloud = cloud
        self._namespace = namespace
        self._folder = folder

    def install(self, values: Values, chart: Path = CHART, *, flags: Sequence[str] = ()) -> None:
        file = written(values, self._folder)
        self._run("upgrade", "--install", "edgehub", chart, "--create-namespace", "--values", file, *flags)

    def uninstall(self) -> None:
        self._run("uninstall", "edgehub")

    def left(self, manifest: str) -> list[str]:
        """Return the objects of a manifest that are in the cluster."""
        asked = ("get", "--ignore-not-found", "--output=name", "-f", "-")
        return self._cloud.kubectl(*asked, stdin=manifest).stdout.splitlines()

    def manifest(self) -> str:
        return self._run("get", "manifest", "edgehub")

    def _run(self, *arguments: str | Path) -> str:
        kubeconfig = self._cloud.folder / "admin.kubeconfig"
        done = subprocess.run(
            [self._helm, *arguments, "--namespace", self._namespace, "--kubeconfig", kubeconfig],
            # Helm has caches in HOME, and reads settings from its environment variables.
            env={"HOME": str(self._folder), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
