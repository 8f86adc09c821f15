"""Label and field selectors: a parser that follows kube-apiserver's, matching, and a canonical text.

Selectors with the same requirements are equal and have the same canonical text, in any order and spelling. Source of
the field grammar: k8s.io/apimachinery, pkg/fields/selector.go.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kube.requests.label_requirements import LabelRequirement, merged, parse_label_requirements


@dataclass(frozen=True, slots=True)
class _Selector[R]:
    """Sorted requirements, all of which an object must fulfil."""

    requirements: tuple[R, ...] = ()

    @property
    def is_everything(self) -> bool:
        """True if every object matches."""
        return not self.requirements

    @property
    def canonical(self) -> str:
        """A text that parses to this selector, the same for every spelling."""
        return ",".join(map(str, self.requirements))


@dataclass(frozen=True, slots=True)
class LabelSelector(_Selector[LabelRequirement]):
    """A label selector, with at most one requirement for each key and operator."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True if an object with these labels matches."""
        return all(requirement.matches(labels) for requirement in self.requirements)


class FieldRequirement(NamedTuple):
    """One requirement on a field such as "spec.nodeName"."""

    field: str
    equal: bool
    value: str

    def __str__(self) -> str:
        return f"{self.field}{'=' if self.equal else '!='}{escape_value(self.value)}"


@dataclass(frozen=True, slots=True)
class FieldSelector(_Selector[FieldRequirement]):
    """A field selector, without repeated requirements.

    It does not know the fields of resources: the caller compares `fields` with those that it can read.
    """

    _values: dict[str, tuple[frozenset[str], frozenset[str]]] = field(init=False, repr=False, compare=False)
    """The values that each field must equal, and those that it must not. A selector may have hundreds for one
    field."""

    def __post_init__(self) -> None:
        values: dict[str, tuple[set[str], set[str]]] = {}
        for requirement in self.requirements:
            values.setdefault(requirement.field, (set(), set()))[not requirement.equal].add(requirement.value)
        frozen = {name: (frozenset(equal), frozenset(other)) for name, (equal, other) in values.items()}
        object.__setattr__(self, "_values", frozen)

    @property
    def fields(self) -> frozenset[str]:
        """The fields in the requirements."""
        return frozenset(requirement.field for requirement in self.requirements)

    def matches(self, value_of: Callable[[str], str]) -> bool:
        """True if an object matches whose field `f` is `value_of(f)`, "" for an absent field."""
        for name, (equal, other) in self._values.items():
            value = value_of(name)
            if value in other or (equal and equal != {value}):
                return False
        return True

    def exact(self, field: str) -> str | None:
        """The only value of a field that matches; None if several do."""
        for requirement in self.requirements:
            if requirement.field == field and requirement.equal:
                return requirement.value
        return None


MAX_SELECTOR = 32 * 1024
"""The most characters of a selector: four times the hub's longest target. Parsing takes microseconds for each
character."""
MAX_REQUIREMENTS = 100
"""The most requirements of a label selector, counting one for each key and operator, because each is matched against
every object of a list."""


def parse_label_selector(text: str) -> LabelSelector:
    """Parse a labelSelector parameter; ValueError with kube-apiserver's message, or if it exceeds a bound."""
    if not text:
        return LabelSelector()
    _check_size(text)
    requirements = merged(parse_label_requirements(text))
    if len(requirements) > MAX_REQUIREMENTS:
        raise ValueError(f"the selector has more than {MAX_REQUIREMENTS} requirements")
    return LabelSelector(requirements)


def parse_field_selector(text: str) -> FieldSelector:
    r"""Parse a fieldSelector parameter, in which "\" escapes "," "=" and "\" in a value.

    ValueError with kube-apiserver's message, or if it exceeds MAX_SELECTOR.
    """
    if not text:
        return FieldSelector()
    _check_size(text)
    requirements = set()
    for term in sorted(_TERM.findall(text)):
        match = _OPERATOR.match(term)
        if match is None:
            raise ValueError(f"invalid selector: '{text}'; can't understand '{term}'")
        field, value = match[1], _unescaped(term[match.end() :])
        if field or value:
            requirements.add(FieldRequirement(field, match[2] != "!=", value))
    return FieldSelector(tuple(sorted(requirements)))


def _check_size(text: str) -> None:
    if len(text) > MAX_SELECTOR:
        raise ValueError(f"the selector is longer than {MAX_SELECTOR} characters")


def escape_value(value: str) -> str:
    r"""Escape a value for a field selector: a "\" before each "\", "," and "="."""
    return _SPECIAL.sub(r"\\\g<0>", value)


# Terms are separated by commas without a preceding "\".
_TERM = re.compile(r"(?:[^,\\]|\\.|\\\Z)+", re.DOTALL)
# The first operator splits a term; nothing before it is escaped.
_OPERATOR = re.compile("(.*?)(!=|==|=)", re.DOTALL)
_SPECIAL = re.compile(r"[\\,=]")
_ESCAPE = re.compile(r"\\(.?)|([,=])", re.DOTALL)


def _unescaped(value: str) -> str:
    return _ESCAPE.sub(_plain, value) if _SPECIAL.search(value) else value


def _plain(match: re.Match[str]) -> str:
    if match[2]:
        raise ValueError(f"invalid field selector: unescaped character in value: {ord(match[2])}")
    if match[1] not in ("\\", ",", "="):
        raise ValueError(f"invalid field selector: invalid escape sequence: {match[0]}")
    return match[1]
