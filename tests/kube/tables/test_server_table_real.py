"""The Table made of a list is the one that a real kube-apiserver sends: columns, cells, conditions and objects."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kube.json_type import Json
from kube.tables.server_table import KNOWN, RESOURCES, table
from tests.cloud.real import RealCloud
from tests.kube.support.every_kind import created, served
from tests.kube.support.tables import STATUSES

pytestmark = pytest.mark.real


def test_tables_of_the_known_kinds_are_the_servers_own(real_cloud: RealCloud, namespace: str) -> None:
    # An annotation that the server makes of a field of a DaemonSet, and not in Tables.
    of_its_own = "deprecated.daemonset.template.generation"

    def compared(found: Json) -> Any:
        """A Table with an age that is the same a moment later."""
        rows = []
        for row in found["rows"]:
            row["object"]["metadata"].get("annotations", {}).pop(of_its_own, None)
            if not row["object"]["metadata"].get("annotations"):
                row["object"]["metadata"].pop("annotations", None)
            cells = [
                re.sub(r"^(\d+[hms])+$", "AGE", cell) if isinstance(cell, str) else cell
                for cell in row["cells"]
            ]
            rows.append((cells, row.get("conditions"), row["object"]))
        return found["columnDefinitions"], rows

    kinds = [each for each in served(real_cloud) if "list" in each.verbs]
    as_table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    with created(real_cloud, namespace, kinds), created(real_cloud, namespace, kinds, STATUSES):
        seen = set()
        for kind in kinds:
            key = kind.api_version.rpartition("/")[0], kind.kind
            assert ((key[0], kind.resource) in RESOURCES) is (key in KNOWN)
            if key not in KNOWN:
                continue
            seen.add(key)
            path = f"{kind.path}/{kind.resource}"
            sent = real_cloud.admin.request("GET", path, headers={"Accept": as_table}).json()
            objects = real_cloud.admin.get(path)["items"]
            made = table(
                [{"kind": kind.kind, "apiVersion": kind.api_version} | each for each in objects],
                kind.api_version,
                kind.kind,
                sent["metadata"],
                "Metadata",
            )
            assert compared(made) == compared(sent)
        assert seen == KNOWN
