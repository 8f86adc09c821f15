"""The number of constructor arguments: collaborators that belong together should be one argument.

A record, whose fields are data and whose constructor is generated, may have more: a row of a report, a set of options.
A field that acts or changes (a callable, a protocol, an object with state) is a collaborator, so its class is not a
record.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tests.repository.support.tree import label, parse, program_modules

MOST_PARAMETERS = 6
"""The maximum number of constructor parameters besides `self`; for a generated one, its fields."""

LARGE_CONSTRUCTORS = {
    "addons.filters.plugins.FilterPlugin": (
        10,
        "a record of what a filter declares, made in one place, with the code as its one collaborator",
    ),
    "addons.requests.answers.ClientRequest": (
        11,
        "a record of a request, in which the answerer notes what it served",
    ),
    "addons.ui.running_hub.RunningHub": (
        13,
        "a record of the parts that reports read: each report takes the hub",
    ),
}
"""Classes with more parameters: the number, and the reason. A number that is too high fails, so they only shrink."""

CALLED = {"collections.abc.Callable"}
"""Types of the language that act."""


class Class(NamedTuple):
    """A class, or a type alias, and its constructor's parameters."""

    name: str
    is_generated: bool
    parameters: int
    acts: bool
    """True if an object acts or changes, whatever its fields are."""
    names: frozenset[str]
    """The types of its fields, or of an alias, with their modules."""


def classes() -> Iterator[Class]:
    """Yield each class and type alias of the program."""
    for path in program_modules():
        module = label(path).removesuffix(".py").replace("/", ".")
        imported = {
            each.asname or each.name: f"{node.module}.{each.name}"
            for node in ast.walk(parse(path))
            if isinstance(node, ast.ImportFrom)
            for each in node.names
        }
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.TypeAlias):
                found = Class(node.name.id, False, 0, False, names_of(node.value))
            elif isinstance(node, ast.ClassDef):
                found = class_of(node)
            else:
                continue
            names = frozenset(imported.get(name, f"{module}.{name}") for name in found.names)
            yield found._replace(name=f"{module}.{found.name}", names=names)


def class_of(node: ast.ClassDef) -> Class:
    bases = names_of(*node.bases)
    made_by = " ".join(ast.unparse(each) for each in node.decorator_list)
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            given = (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)
            return Class(node.name, False, len(given) - 1, True, frozenset())
    is_dataclass = "dataclass" in made_by
    is_generated = is_dataclass or bool(bases & {"NamedTuple", "Struct"})
    fields = [
        each
        for each in node.body
        if isinstance(each, ast.AnnAssign)
        and not names_of(each.annotation) & {"ClassVar", "KW_ONLY"}
        and "init=False" not in ast.unparse(each)
    ]
    names = names_of(*(each.annotation for each in fields)) if is_generated else frozenset()
    acts = bool(bases & {"Protocol", "ABC"}) or (is_dataclass and "frozen=True" not in made_by)
    return Class(node.name, is_generated, len(fields) if is_generated else 0, acts, names)


def names_of(*nodes: ast.AST) -> frozenset[str]:
    return frozenset(
        each.id if isinstance(each, ast.Name) else each.attr
        for node in nodes
        for each in ast.walk(node)
        if isinstance(each, ast.Name | ast.Attribute)
    )


def collaborators(known: list[Class]) -> set[str]:
    """Return the names of all types that act, and of all types that contain one."""
    found = CALLED | {each.name for each in known if each.acts}
    while more := {each.name for each in known if each.names & found} - found:
        found |= more
    return found


def test_the_number_of_constructor_parameters_is_bounded() -> None:
    known = list(classes())
    acting = collaborators(known)
    large = {
        each.name: each.parameters
        for each in known
        if each.parameters > MOST_PARAMETERS and (not each.is_generated or each.names & acting)
    }
    assert large == {name: count for name, (count, _) in LARGE_CONSTRUCTORS.items()}
