"""`scripts/render`: generates the plain manifests from the chart.

Each template with default values becomes one file of `controllers/manifests/`. The CustomResourceDefinitions exist
only in that folder, because the manager reads them there; the chart links to them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from tests.cloud.build import ensure_helm

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart"
MANIFESTS = ROOT / "controllers" / "manifests"
NAMESPACE = "kube-system"
LEFT_OUT = frozenset({"rules-admission.yaml"})
"""Templates without a manifest here, because theirs are in `configmaps/`."""
HEAD = """\
# Rendered by scripts/render: change deploy/chart/templates/{name}. A cluster has these or the chart (docs/packages.md).
"""
SOURCE = re.compile(r"\A# Source: edgehub/templates/(?P<name>[\w.-]+)\n")


def main() -> int:
    """With `--write`, write the manifests that differ; otherwise print their names and exit with status 1."""
    parser = argparse.ArgumentParser(prog="scripts/render", description=__doc__)
    parser.add_argument("--write", action="store_true", help="Write the manifests that differ.")
    write: bool = parser.parse_args().write
    differing = {
        name: text for name, text in render(ensure_helm()).items() if text != current(MANIFESTS / name)
    }
    for name, text in differing.items():
        print(MANIFESTS / name)
        if write:
            (MANIFESTS / name).write_text(text)
    return 1 if differing and not write else 0


def render(helm: Path) -> dict[str, str]:
    """Return the text of each plain manifest, by file name."""
    rendered = subprocess.run(
        [helm, "template", "edgehub", CHART, "--namespace", NAMESPACE, "--set", "labels=false"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    documents: dict[str, list[str]] = {}
    for document in re.split(r"^---\n", rendered, flags=re.MULTILINE):
        source = SOURCE.match(document)
        if source and source["name"] not in LEFT_OUT:
            documents.setdefault(source["name"], []).append(document[source.end() :].strip("\n") + "\n")
    return {name: HEAD.format(name=name) + "---\n".join(texts) for name, texts in documents.items()}


def current(path: Path) -> str:
    """Read a file, "" if it does not exist."""
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
