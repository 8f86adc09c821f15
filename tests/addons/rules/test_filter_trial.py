"""Filters tried on the objects of a file, as their authors try them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from addons.filters.inputs import Inputs
from addons.filters.verdict import Outcome
from addons.rules.filter_trial import GivenInputs, try_filters
from tests.addons.support.filter_plugins import write
from tests.repository.support.tree import ROOT

SERVICE = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}}"
FILTER = """
from addons.filters.verdict import Outcome, Verdict
from tests.addons.support.filter_plugins import Hiding

class Own(Hiding):
    def apply(self, obj, inputs, note=None):
        {body}
        return Verdict(Outcome.{outcome}, "shown")

FILTERS = (Own(),)
"""


def blocks(language: str) -> list[str]:
    """The pieces of code of the page for people who write filters."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", (ROOT / "docs" / "filters.md").read_text(), re.DOTALL | re.MULTILINE
    )


def test_the_example_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example, its_test = blocks("python")
    (objects,) = blocks("yaml")
    assert len([line for line in example.splitlines() if line]) <= 30, "an example that is read in a minute"
    write(tmp_path / "canaries.py", example)
    (tmp_path / "services.yaml").write_text(objects)
    monkeypatch.chdir(tmp_path)
    there: dict[str, Any] = {}
    exec(its_test, there)  # noqa: S102 - the page's own code
    there["test_canaries_are_for_canary_nodes"]()


def tried(
    folder: Path, body: str, outcome: str = "KEPT", objects: str = SERVICE
) -> list[tuple[str, Outcome, Any]]:
    write(folder / "acme.py", FILTER.format(body=body, outcome=outcome))
    (folder / "objects.yaml").write_text(objects)
    found = try_filters(folder / "acme.py", folder / "objects.yaml")
    return [(each.name, each.outcome, each.shown) for each in found]


def test_each_object_of_a_list_is_tried(tmp_path: Path) -> None:
    listed = f"{{kind: List, apiVersion: v1, items: [{SERVICE}, {SERVICE}]}}"
    assert [name for name, _, _ in tried(tmp_path, "pass", objects=listed)] == ["web", "web"]


def test_what_is_changed_is_shown(tmp_path: Path) -> None:
    body = "obj.fields.child('spec').set('type', 'ClusterIP')"
    ((_, outcome, shown),) = tried(tmp_path, body, "CHANGED")
    assert (outcome, shown["spec"]) == (Outcome.CHANGED, {"type": "ClusterIP"})


def test_what_is_hidden_is_not(tmp_path: Path) -> None:
    assert tried(tmp_path, "pass", "DROPPED") == [("web", Outcome.DROPPED, None)]


@pytest.mark.parametrize(
    ("body", "outcome", "problem"),
    [
        ("obj.fields.child('spec').set('type', 'x')", "KEPT", "calls web kept, and that is not what it did"),
        ("pass", "CHANGED", "calls web changed, and that is not what it did"),
        (
            "spec = obj.fields.child('spec'); spec.set('type', spec.text('type') + 'x')",
            "CHANGED",
            "a second time",
        ),
    ],
)
def test_a_broken_promise_is_told(tmp_path: Path, body: str, outcome: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        tried(tmp_path, body, outcome)


def test_given_inputs_answer_what_filters_ask() -> None:
    inputs: Inputs = GivenInputs(
        services={("a", "web"): {"x": "y"}},
        nodes={"n1": {"zone": "z"}},
        pool="p",
        pools={"p": {"n1"}},
        ready={("a", "web"): frozenset({"n1"})},
        unhealthy=frozenset({"n2"}),
    )
    facts = inputs.service("a", "web")
    assert facts is not None
    assert facts.annotations == {"x": "y"}
    assert inputs.service("a", "other") is None
    assert (inputs.node_labels("n1"), inputs.node_labels("n9")) == ({"zone": "z"}, None)
    assert (inputs.own_pool(), inputs.pool_nodes("p"), inputs.pool_nodes("q")) == ("p", {"n1"}, None)
    assert inputs.ready_nodes("a", "web", "IPv4") == frozenset({"n1"})
    assert inputs.ready_nodes("a", "other", "IPv4") == frozenset()
    assert (inputs.is_healthy("n1"), inputs.is_healthy("n2")) == (True, False)
