"""The README tells what there is: metrics, options and their defaults, flags, filters, annotations, words."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import controllers.runtime.metrics
from addons import command
from addons.filters.chain import FILTERS
from addons.options import OPTIONS
from addons.telemetry import metrics
from controllers import manager
from scripts import bench_program, demo_program
from tests.repository.test_documents import texts
from tests.repository.tree import ROOMS, ROOT, label, parse, prose, room_modules

README = (ROOT / "README.md").read_text()
METRIC = re.compile(r"\bedgehub_\w*[a-z](?:\{(?P<labels>[^}…]*)\})?")
SCRIPT = re.compile(r"scripts/(?P<name>[a-z]+)(?P<rest>[^`\n#]*)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
QUALIFIED = re.compile(r"(?<![\w./:-])[a-z][\w-]*(?:\.[a-z][\w-]*)*\.io/\w[\w.-]*\w")
"""An annotation, a label or an API version."""

GIVEN = {"kubernetes.io/hostname", "kubernetes.io/zone"}
"""Labels of Kubernetes' own that a person may use as a topology, and that no code has to name."""

MITMPROXYS = {"--set"}
"""Flags of mitmproxy's own, which follow `--`."""


# -- metrics -------------------------------------------------------------------------------------------------------


def samples(registry: CollectorRegistry) -> dict[str, set[str]]:
    """The names of a registry's samples and their labels."""
    return {
        name: set(getattr(collector, "_labelnames", ()))
        for name, collector in registry._names_to_collectors.items()
    }


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
    assert len(METRIC.findall(README)) > 10
    assert METRIC.search("edgehub_…") is None


# -- commands ------------------------------------------------------------------------------------------------------


def help_of(run: Callable[[], object]) -> str:
    """What a command prints when it is asked for its flags."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit):
        run()
    return printed.getvalue()


@pytest.fixture(scope="module")
def flags() -> dict[str, set[str]]:
    """The flags of each command."""
    asked = pytest.MonkeyPatch()
    asked.setattr("sys.argv", ["program", "--help"])
    helps = {
        "hub": help_of(lambda: command.main(["--help"])),
        "hub explain": help_of(lambda: command.main(["explain", "--help"])),
        "manager": help_of(lambda: manager.main(["--help"])),
        "demo": help_of(demo_program.main),
        "bench": help_of(bench_program.main),
    }
    asked.undo()
    return {name: set(FLAG.findall(text)) for name, text in helps.items()} | {"test": {"--quick"}}


def commands(text: str) -> Iterator[tuple[str, set[str]]]:
    """The scripts that a text runs, each with the flags that it is given."""
    for found in SCRIPT.finditer(text):
        rest = found["rest"].partition(" -- ")[0]
        name = "hub explain" if found["name"] == "hub" and rest.split()[:1] == ["explain"] else found["name"]
        yield name, set(FLAG.findall(rest))


def test_commands_have_the_flags_that_they_are_shown_with(flags: dict[str, set[str]]) -> None:
    wrong = [
        f"scripts/{name}: {', '.join(sorted(given - flags.get(name, set())))}"
        for name, given in commands(README)
        if given - flags.get(name, set())
    ]
    assert not wrong, "\n".join(wrong)


def test_a_flag_by_itself_is_one_of_some_command(flags: dict[str, set[str]]) -> None:
    known = set[str]().union(*flags.values())
    alone = set(re.findall(r"`(--[a-z-]+)[^`]*`", README))
    assert len(alone) > 10
    assert alone - known - MITMPROXYS == set()


def test_commands_of_a_text() -> None:
    text = "`scripts/hub explain --name x` and\nscripts/hub --port 1 -- --set x  # --no\n"
    assert list(commands(text)) == [("hub explain", {"--name"}), ("hub", {"--port"})]


def rows(heading: str) -> list[list[str]]:
    """The cells of the table that begins with this heading."""
    _, _, table = README.partition(f"\n| {heading} |")
    assert table, f"no table of {heading}"
    lines = table.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_options_have_the_defaults_that_are_told() -> None:
    known = {f"--{name.replace('_', '-')}": str(default) for name, _, default, _ in OPTIONS}
    told = {
        flag: default.strip("` ")
        for flags, defaults, _ in rows("option")
        for flag, default in zip(FLAG.findall(flags), defaults.split(", ") * 9, strict=False)
    }
    # A default in words is a rule and no value.
    values = {flag: default for flag, default in told.items() if re.fullmatch(r"[\w./-]+", default)}
    assert len(values) > 6
    assert {flag: known.get(flag, "none") for flag in values} == values


# -- filters, annotations ------------------------------------------------------------------------------------------


def test_each_filter_is_told_with_the_components_that_it_is_for() -> None:
    told = {name.strip("`"): whom for name, _, whom in rows("filter")}
    assert told == {
        each.name: ", ".join(sorted(each.components, key=whom_order(told[each.name]))) or "nobody"
        for each in FILTERS
    }


def whom_order(text: str) -> Callable[[str], int]:
    """The order in which a text names components."""
    return text.find


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
    names = set(QUALIFIED.findall(README)) - GIVEN
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
        assert re.search(rf"\b{word}", text, re.IGNORECASE), f"{where} does not speak of {word}"


def test_the_words_are_one_for_each_thing() -> None:
    words = [word for word, *_ in rows("word")]
    assert len(set(words)) == len(words)
    others = [other for _, _, others, _ in rows("word") for other in others.split(", ") if other]
    assert others
    used = re.compile(rf"\b(?:{'|'.join(others)})s?\b", re.IGNORECASE)
    rooms = (path for path in room_modules() if path.relative_to(ROOT).parts[0] in ("kube", "addons"))
    wrong = [
        f"{label(path)}:{number}: {line.strip()}"
        for path in rooms
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if used.search(line)
    ]
    assert not wrong, "\n".join(wrong)
