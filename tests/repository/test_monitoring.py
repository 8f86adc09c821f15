"""The Grafana board and the Prometheus alerts query existing metrics of hub and manager, with existing labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
import yaml

import controllers.runtime.metrics
from addons.telemetry import metrics
from scripts.documents.tables import DOCS, samples, shown_names

ASKED = re.compile(r"\b(edgehub_\w+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
LABELS_SHOWN = re.compile(r"\{\{ ?\$labels\.(\w+) ?\}\}|\{\{(\w+)\}\}")


def queries() -> Iterator[tuple[str, str]]:
    """Yield (query, the texts that name its labels) of each panel and alert."""
    for panel in json.loads((DOCS / "grafana.json").read_text())["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], target["legendFormat"]
    for group in yaml.safe_load((DOCS / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"], " ".join(rule["annotations"].values())


@pytest.mark.parametrize(("query", "legend"), list(queries()))
def test_each_query_uses_an_existing_metric_with_its_labels(query: str, legend: str) -> None:
    known = samples(metrics.REGISTRY) | samples(controllers.runtime.metrics.REGISTRY)
    found = ASKED.findall(query)
    assert found, f"{query} asks for no metric"
    # Labels added by Prometheus.
    everywhere = {"instance", "job"}
    for name, picked in found:
        assert name in known, f"there is no metric {name}"
        labels = {each.strip() for part in GROUPED.findall(query) for each in part.split(",")}
        labels |= {each.partition("=")[0].strip("!~ ") for each in picked.split(",") if each}
        labels |= {one or other for one, other in LABELS_SHOWN.findall(legend)}
        assert labels <= known[name] | everywhere, f"{name} has no label {labels - known[name] - everywhere}"


def test_each_alert_names_a_heading_that_exists() -> None:
    for group in yaml.safe_load((DOCS / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            page, _, anchor = rule["annotations"]["runbook"].partition(".html#")
            text = (DOCS / f"{page}.md").read_text()
            titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            headings = [re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in titles]
            assert anchor in headings, f"{rule['alert']} leads to no heading of {page}"


def test_the_board_has_each_metric_of_the_hub() -> None:
    shown = {name for query, _ in queries() for name, _ in ASKED.findall(query)}
    assert set(shown_names(metrics.REGISTRY)) - shown == {"edgehub_local_health_up"}, (
        "edgehub_local_health_failures says more"
    )


def test_panels_do_not_overlap() -> None:
    """Grafana moves overlapping panels, so that the board differs from the file."""
    panels = json.loads((DOCS / "grafana.json").read_text())["panels"]
    taken = [
        (each["gridPos"]["x"] + column, each["gridPos"]["y"] + line)
        for each in panels
        for column in range(each["gridPos"]["w"])
        for line in range(each["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert len({each["id"] for each in panels}) == len(panels)
