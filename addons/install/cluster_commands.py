"""`edgehub fleet` and `edgehub manifests`, which run anywhere: the table of all hubs, read with a user's own
kubeconfig, and the manifests for the cloud, which the wheel contains.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from operator import itemgetter
from pathlib import Path

import orjson

from addons.install.cloud import cloud
from addons.ui.reports.text import table
from kube.errors import StatusError
from kube.fleet import ANNOTATION, COLUMNS, FleetHub, read_fleet, read_progress
from kube.http.client import Unreachable
from kube.http.kubeconfig import load_kubeconfig
from kube.log_lines import printable

NO_HUBS = (
    f"no hub: no Lease in kube-node-lease has the annotation {ANNOTATION}, which a hub writes (not in --mode cloud) "
    "once kubelet renews the Lease of its node through it: does kubelet's kubeconfig lead to the hub, and is this the "
    "cluster?\n"
)
MANIFESTS = Path(__file__).parents[2] / "controllers" / "manifests"
"""Folder of the manifests, in a checkout and in the wheel."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `edgehub fleet`."""
    parser.add_argument("--kubeconfig", type=Path, help="Default: $KUBECONFIG, or ~/.kube/config.")
    parser.add_argument("--context", default="", help="One of its contexts. Default: the current one.")
    parser.add_argument("--json", action="store_true", help="For tools.")


def kubeconfigs(given: Path | None, environment: Mapping[str, str]) -> Sequence[Path]:
    """Return the kubeconfigs that kubectl would use."""
    if given is not None:
        return (given,)
    named = [Path(path) for path in environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    return named or (Path(environment.get("HOME", "/"), ".kube", "config"),)


def fleet_text(kubeconfig: Path | None, context: str, *, as_json: bool) -> str:
    """Return the table of hubs. ValueError, with a message for the user, if the cloud does not answer or refuses."""
    credentials = load_kubeconfig(*kubeconfigs(kubeconfig, os.environ), context=context)
    if credentials.user.plugin is not None:
        credentials.user.use_output(credentials.user.plugin.run())

    async def read(now: datetime) -> tuple[list[FleetHub], list[str]]:
        async with cloud(credentials) as client:
            return await read_fleet(client, now), await read_progress(client)

    now = datetime.now(UTC)
    try:
        hubs, progress = asyncio.run(read(now))
    except (StatusError, Unreachable) as error:
        raise ValueError(f"{credentials.cluster.server}: {error}") from None
    if as_json:
        return orjson.dumps([hub.to_json() for hub in hubs], option=orjson.OPT_INDENT_2).decode() + "\n"
    rows = [dict(zip(COLUMNS, hub.cells(now), strict=True)) for hub in hubs]
    hubs_text = table(rows, [(name, itemgetter(name)) for name in COLUMNS]) if hubs else NO_HUBS
    return "\n".join([hubs_text.rstrip("\n"), *map(printable, progress)]) + "\n"


def manifest_names() -> list[str]:
    """Return the names of all manifests, without suffix."""
    return sorted(path.stem for path in MANIFESTS.glob("*.yaml"))


def manifest(name: str) -> str:
    """Return the text of a manifest, by its name with or without suffix. ValueError if it does not exist."""
    stem = name.removesuffix(".yaml")
    if stem not in manifest_names():
        raise ValueError(f"there is no manifest {name!r}: there are {', '.join(manifest_names())}")
    return (MANIFESTS / f"{stem}.yaml").read_text()


def listed() -> Iterator[str]:
    """Yield a line for each manifest: its name, and the first sentence of its description."""
    for name in manifest_names():
        lines = manifest(name).splitlines()
        comments = [line[2:] for line in takewhile(lambda line: line.startswith("#"), lines)]
        about = " ".join(comment for comment in comments if not comment.startswith("Rendered by"))
        yield f"{name:<24} {re.split(r'(?<=[.:]) ', about)[0].rstrip(':')}"
