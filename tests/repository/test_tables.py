"""The tables of the pages say what the code has: metrics, options, filters, controllers, annotations, words."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import controllers.runtime.metrics
from addons import command
from addons.filters.chain import FILTERS
from addons.settings import OPTIONS
from addons.telemetry import metrics
from controllers.registry import CONTROLLERS
from controllers.settings import parse_settings
from tests.repository.support.pages import FLAG, pages, rows
from tests.repository.support.tree import ROOMS, ROOT, label, parse, prose, room_modules
from tests.repository.test_documents import texts

METRIC = re.compile(r"\bedgehub_\w*[a-z](?:\{(?P<labels>[^}…]*)\})?")
QUALIFIED = re.compile(r"(?<![\w./:-])[a-z][\w-]*(?:\.[a-z][\w-]*)*\.io/\w[\w.-]*\w")
"""An annotation, a label or an API version."""

GIVEN = {"kubernetes.io/hostname", "kubernetes.io/zone"}
"""Labels of Kubernetes' own that a person may use as a topology, and that no code has to name."""


# -- metrics -------------------------------------------------------------------------------------------------------


def samples(registry: CollectorRegistry) -> dict[str, set[str]]:
    """The names of a registry's samples and their labels."""
    return {
        name: set(getattr(collector, "_labelnames", ()))
        for name, collector in registry._names_to_collectors.items()
    }


def described(registry: CollectorRegistry) -> set[str]:
    """The name of each metric as Prometheus shows it."""
    return {each.name + ("_total" if each.type == "counter" else "") for each in registry.collect()}


@pytest.mark.parametrize(
    ("heading", "registry"),
    [("metric", metrics.REGISTRY), ("manager metric", controllers.runtime.metrics.REGISTRY)],
)
def test_each_metric_has_its_row(heading: str, registry: CollectorRegistry) -> None:
    told = {name.strip("`").partition("{")[0] for name, *_ in rows(heading)}
    assert described(registry) - told == set(), f"the table {heading!r} in docs/ lacks a row"
    assert told - described(registry) == set()


def test_metrics_exist_with_their_labels() -> None:
    known = samples(metrics.REGISTRY) | samples(controllers.runtime.metrics.REGISTRY)
    wrong = []
    for path, line, text in texts():
        if path.suffix == ".py" and path.parts[len(ROOT.parts)] not in ROOMS:
            continue
        for found in METRIC.finditer(text):
            name = found[0].partition("{")[0]
            labels = {each.partition("=")[0] for each in (found["labels"] or "").split(",") if each}
            # A label with a value picks some of the samples; without values all labels are told.
            picks = "=" in (found["labels"] or "=")
            if name not in known or not (labels <= known[name] if picks else labels == known[name]):
                wrong.append(f"{label(path)}:{line + text.count(chr(10), 0, found.start())}: {found[0]}")
    assert not wrong, "\n".join(wrong)


def test_metrics_are_found() -> None:
    assert METRIC.search("edgehub_…") is None
    assert METRIC.findall("`edgehub_sources` and edgehub_watchers{resource}") == ["", "resource"]


# -- options -------------------------------------------------------------------------------------------------------


def flags_of(make: Callable[[], object]) -> dict[str, Any]:
    """The flags that a program adds to its parser, each with its default."""
    actions: list[argparse.Action] = []
    add = argparse.ArgumentParser.add_argument

    def note(parser: argparse.ArgumentParser, *names: str, **given: Any) -> argparse.Action:
        action = add(parser, *names, **given)
        actions.append(action)
        return action

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "add_argument", note)
        make()
    return {action.option_strings[-1]: action.default for action in actions if action.dest != "help"}


def hub_options() -> dict[str, Any]:
    """Each flag of the hub. Those that are options of mitmproxy, too, have their defaults in the options' table."""
    defaults = {f"--{name.replace('_', '-')}": default for name, _, default, _ in OPTIONS}
    return flags_of(command.make_parser) | defaults


def manager_options() -> dict[str, Any]:
    return flags_of(lambda: parse_settings([], list(CONTROLLERS)))


OPTION_TABLES: dict[str, Callable[[], dict[str, Any]]] = {
    "option": hub_options,
    "manager option": manager_options,
}


def told_options(heading: str) -> dict[str, str]:
    """Each option of a table with the default that it tells."""
    return {
        flag: default.strip("` ")
        for flags, defaults, _ in rows(heading)
        for flag, default in zip(FLAG.findall(flags), defaults.split(", ") * 9, strict=False)
    }


@pytest.mark.parametrize("heading", OPTION_TABLES)
def test_each_option_has_its_row(heading: str) -> None:
    told, known = set(told_options(heading)), set(OPTION_TABLES[heading]())
    assert known - told == set(), f"the table {heading!r} in docs/ lacks a row"
    assert told - known == set()


@pytest.mark.parametrize("heading", OPTION_TABLES)
def test_options_have_the_defaults_that_are_told(heading: str) -> None:
    known = {flag: str(default) for flag, default in OPTION_TABLES[heading]().items()}
    told = told_options(heading)
    # A default in words is a rule and no value.
    values = {flag: default for flag, default in told.items() if re.fullmatch(r"[\w./-]+", default)}
    assert len(values) > 4
    assert {flag: known.get(flag, "none") for flag in values} == values


# -- the log -------------------------------------------------------------------------------------------------------


def test_the_lines_of_the_log_are_the_programs() -> None:
    known = strings()
    told = [line.strip("`").removeprefix("edgehub 0.2.0 ") for line, _ in rows("line begins with")]
    assert len(told) > 3
    assert [line for line in told if line not in known] == []


# -- filters, controllers, annotations -----------------------------------------------------------------------------


def test_each_filter_is_told_with_the_components_that_it_is_for() -> None:
    told = {name.strip("`"): whom for name, _, whom in rows("filter")}
    assert told == {
        each.name: ", ".join(sorted(each.components, key=told[each.name].find)) or "nobody"
        for each in FILTERS
    }


def test_each_controller_is_told() -> None:
    assert {name.strip("`") for names, _ in rows("controller") for name in names.split(", ")} == set(
        CONTROLLERS
    )


def strings() -> str:
    """Every string of the product that is not prose, and its manifests."""
    found = []
    for path in room_modules():
        told = {(line, text) for line, text in prose(parse(path))}
        for node in ast.walk(parse(path)):
            match node:
                case ast.Constant(value=str(text)) if (node.lineno, text) not in told:
                    found.append(text)
    manifests = (ROOT / "controllers" / "manifests").glob("*.yaml")
    return "\n".join((*found, *map(Path.read_text, manifests)))


def test_annotations_and_versions_exist() -> None:
    known = strings()
    names = {name for page in pages() for name in QUALIFIED.findall(page.read_text())} - GIVEN
    assert len(names) > 5
    # A name's two halves may be put together in the code.
    wrong = {
        name for name in names if name not in known and not all(half in known for half in name.split("/"))
    }
    assert wrong == set()


# -- words ---------------------------------------------------------------------------------------------------------


def test_each_word_is_used_where_the_glossary_says() -> None:
    for word, _, _, where in rows("word"):
        text = (ROOT / where.strip("`")).read_text()
        # In code the words of a name are joined by nothing or by an underscore.
        spelt = word.replace(" ", "[ _]?")
        assert re.search(rf"\b_?{spelt}", text, re.IGNORECASE), f"{where} does not speak of {word}"


def uses(words: list[str]) -> Iterator[str]:
    """The lines of hub and kube that use one of these words."""
    used = re.compile(rf"\b(?:{'|'.join(words)})s?\b", re.IGNORECASE)
    for path in room_modules():
        if path.relative_to(ROOT).parts[0] in ("kube", "addons"):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if used.search(line):
                    yield f"{label(path)}:{number}: {line.strip()}"


def test_the_words_are_one_for_each_thing() -> None:
    words = [word for word, *_ in rows("word")]
    assert len(set(words)) == len(words)
    others = [other for _, _, others, _ in rows("word") for other in others.split(", ") if other]
    assert others
    wrong = list(uses(others))
    assert not wrong, "\n".join(wrong)
