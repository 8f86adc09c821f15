"""Filters from an operator's files and packages, which are checked before they are used."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from addons.filters.chain import FILTERS
from addons.filters.filter import Filter
from addons.filters.inputs import Inputs
from addons.filters.verdict import Outcome
from addons.rules import filter_modules
from addons.rules.filter_modules import GROUP, FilterModules, load_file
from addons.rules.filter_trial import GivenInputs, try_filters
from addons.rules.table import parse_rules
from addons.telemetry import metrics
from kube.disk.atomic_file import MAX_FILE
from tests.addons.support.filter_plugins import text_of, write
from tests.addons.support.observed import until, value_of
from tests.repository.support.tree import ROOT
from tests.support.background import beside


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "acme.py"
    made.write_text(text_of("web"))
    made.chmod(0o644)
    return made


def test_filters_of_a_file_are_ordered_among_the_builtin_ones(file: Path) -> None:
    modules = FilterModules(FILTERS, [file])
    assert [each.name for each in modules.filters] == [*(each.name for each in FILTERS), "acme-hide"]
    assert [each.name for each in modules.plugins] == ["acme-hide"]
    explained = parse_rules(None, filters=modules.filters).bindings.explain(
        "kube-proxy", "", "services", "list"
    )
    assert "acme-hide: bound by the filter itself" in explained, "it is none of the built-in ones"
    assert load_file(file) == load_file(file), "the same text is the same filter"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("FILTERS = (", "SyntaxError"),
        ("import no_such_package", "ModuleNotFoundError"),
        ("raise SystemExit(7)", "SystemExit: 7"),
        ("", "has no FILTERS, a tuple of filters"),
        ("FILTERS = ()", "has no FILTERS, a tuple of filters"),
        ("FILTERS = (7,)", "7 needs a name"),
        ("#" * (MAX_FILE + 1), f"larger than {MAX_FILE} bytes"),
    ],
)
def test_a_faulty_file_of_filters_is_reported_with_its_path(file: Path, text: str, problem: str) -> None:
    file.write_text(text)
    with pytest.raises(ValueError, match=problem) as caught:
        FilterModules(FILTERS, [file])
    assert str(file) in str(caught.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        FilterModules(FILTERS, [tmp_path / "acme.py"])


def writable_by_others(file: Path) -> None:
    file.chmod(0o666)


def writable_by_the_group(file: Path) -> None:
    file.chmod(0o664)


def in_an_open_folder(file: Path) -> None:
    file.parent.chmod(0o777)


def behind_a_link(file: Path) -> None:
    """The link is in a safe folder, its target is not."""
    there = file.parent / "open"
    there.mkdir()
    target = file.rename(there / "acme.py")
    there.chmod(0o777)
    file.symlink_to(target)


@pytest.mark.parametrize(
    "opened", [writable_by_others, writable_by_the_group, in_an_open_folder, behind_a_link]
)
def test_a_file_writable_by_another_user_is_refused(file: Path, opened: Callable[[Path], None]) -> None:
    opened(file)
    with pytest.raises(ValueError, match="can be written by other users, whose code the hub would run"):
        load_file(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(file: Path) -> None:
    os.chown(file, 1234, -1)
    with pytest.raises(ValueError, match="belongs to another user"):
        load_file(file)


def test_the_hubs_own_file_in_a_sticky_folder_is_accepted(file: Path) -> None:
    file.parent.chmod(0o1777)
    assert load_file(file)


def test_filters_of_an_installed_package_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_filters.py").write_text(text_of("web"))
    about = tmp_path / "acme_filters-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-filters\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\nacme = acme_filters:FILTERS\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert metadata.version("acme-filters") == "1.2"
    (found,) = FilterModules(FILTERS, []).plugins
    assert found.digest == "acme-filters 1.2 acme_filters:FILTERS"
    (about / "entry_points.txt").write_text(f"[{GROUP}]\nacme = acme_filters:NOTHING\n")
    with pytest.raises(ValueError, match=r"entry point acme of acme-filters 1\.2: AttributeError"):
        FilterModules(FILTERS, [])


async def test_a_valid_change_is_loaded_and_an_invalid_one_is_not(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(filter_modules, "CHECK_INTERVAL", 0.01)
    modules = FilterModules(FILTERS, [file])
    first, taken = modules.filters, asyncio.Queue[tuple[Filter, ...]]()
    async with beside(modules.follow(taken.put_nowait)):
        await asyncio.to_thread(file.write_text, "FILTERS = (")
        await until(lambda: modules.problem, 20)
        assert "SyntaxError" in modules.problem
        assert value_of(metrics.FILTER_MODULES_BROKEN) == 1
        assert modules.filters == first
        assert taken.empty()
        assert "the previous filters stay active" in caplog.text
        await asyncio.to_thread(file.write_text, text_of("another"))
        async with asyncio.timeout(20):
            assert await taken.get() == modules.filters
        assert modules.filters != first
        assert (modules.problem, value_of(metrics.FILTER_MODULES_BROKEN)) == ("", 0)


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
    """Return the code blocks of the documentation page about writing filters."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", (ROOT / "docs" / "filters.md").read_text(), re.DOTALL | re.MULTILINE
    )


def test_the_documented_example_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example, its_test = blocks("python")
    (objects,) = blocks("yaml")
    assert len([line for line in example.splitlines() if line]) <= 30, "an example that is read in a minute"
    write(tmp_path / "canaries.py", example)
    (tmp_path / "services.yaml").write_text(objects)
    monkeypatch.chdir(tmp_path)
    there: dict[str, Any] = {}
    exec(its_test, there)  # noqa: S102 - the page's own code
    there["test_canaries_are_for_canary_nodes"]()


def try_filter(
    folder: Path, body: str, outcome: str = "KEPT", objects: str = SERVICE
) -> list[tuple[str, Outcome, Any]]:
    write(folder / "acme.py", FILTER.format(body=body, outcome=outcome))
    (folder / "objects.yaml").write_text(objects)
    found = try_filters(folder / "acme.py", folder / "objects.yaml")
    return [(each.name, each.outcome, each.shown) for each in found]


def test_the_filter_is_applied_to_each_object_of_a_list(tmp_path: Path) -> None:
    listed = f"{{kind: List, apiVersion: v1, items: [{SERVICE}, {SERVICE}]}}"
    assert [name for name, _, _ in try_filter(tmp_path, "pass", objects=listed)] == ["web", "web"]


def test_a_changed_object_is_printed(tmp_path: Path) -> None:
    body = "obj.fields.child('spec').set('type', 'ClusterIP')"
    ((_, outcome, shown),) = try_filter(tmp_path, body, "CHANGED")
    assert (outcome, shown["spec"]) == (Outcome.CHANGED, {"type": "ClusterIP"})


def test_a_hidden_object_is_not_printed(tmp_path: Path) -> None:
    assert try_filter(tmp_path, "pass", "DROPPED") == [("web", Outcome.DROPPED, None)]


@pytest.mark.parametrize(
    ("body", "outcome", "problem"),
    [
        ("obj.fields.child('spec').set('type', 'x')", "KEPT", "reports web as kept, but did something else"),
        ("pass", "CHANGED", "reports web as changed, but did something else"),
        (
            "spec = obj.fields.child('spec'); spec.set('type', spec.text('type') + 'x')",
            "CHANGED",
            "is not idempotent",
        ),
    ],
)
def test_a_filter_that_breaks_its_contract_is_reported(
    tmp_path: Path, body: str, outcome: str, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        try_filter(tmp_path, body, outcome)


def test_filters_read_the_given_inputs() -> None:
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
