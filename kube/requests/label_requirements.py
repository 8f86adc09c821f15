"""The requirements of a label selector, and their parser, which accepts what kube-apiserver accepts.

Source: k8s.io/apimachinery, pkg/labels/selector.go.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kube.requests.label_syntax import key_faults, value_faults
from kube.requests.query import parse_integer
from kube.requests.quoting import quoted


class Operator(StrEnum):
    """The operator of a requirement. "=", "==" and "!=" parse as IN and NOT_IN of one value."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "!"
    GREATER = ">"
    LESS = "<"


@dataclass(frozen=True, slots=True, order=True)
class LabelRequirement:
    """One requirement. `values` are sorted and unique; GREATER and LESS have one, a decimal number."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    _members: frozenset[str] = field(init=False, repr=False, compare=False)
    """`values` as a set, because a selector with thousands of values is matched against every object."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_members", frozenset(self.values))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True if the labels fulfil the requirement. Without the label, only NOT_IN and ABSENT are fulfilled."""
        value = labels.get(self.key)
        if value is None:
            return self.operator is Operator.NOT_IN or self.operator is Operator.ABSENT
        match self.operator:
            case Operator.IN:
                return value in self._members
            case Operator.NOT_IN:
                return value not in self._members
            case Operator.EXISTS:
                return True
            case Operator.ABSENT:
                return False
            case _:
                return self._compares(value)

    def _compares(self, value: str) -> bool:
        try:
            number = parse_integer(value)
        except ValueError:
            return False
        bound = int(self.values[0])
        return number > bound if self.operator is Operator.GREATER else number < bound

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.ABSENT:
                return f"!{self.key}"
            case Operator.GREATER | Operator.LESS:
                return f"{self.key}{self.operator}{self.values[0]}"
        if len(self.values) == 1:
            return f"{self.key}{'=' if self.operator is Operator.IN else '!='}{self.values[0]}"
        return f"{self.key} {self.operator} ({','.join(self.values)})"


def merged(requirements: Iterable[LabelRequirement]) -> tuple[LabelRequirement, ...]:
    """Return equivalent requirements, sorted, at most one for each key and operator.

    Unsatisfiable ones become "key,!key".
    """
    by_key: dict[tuple[str, Operator], list[LabelRequirement]] = {}
    for requirement in requirements:
        by_key.setdefault((requirement.key, requirement.operator), []).append(requirement)
    return tuple(
        sorted({value for (key, operator), group in by_key.items() for value in _one(key, operator, group)})
    )


def _one(key: str, operator: Operator, requirements: list[LabelRequirement]) -> Iterator[LabelRequirement]:
    """Merge several requirements of one key and operator."""
    sets = [frozenset(requirement.values) for requirement in requirements]
    match operator:
        case Operator.IN:
            values = frozenset.intersection(*sets)
        case Operator.GREATER | Operator.LESS:
            last = max if operator is Operator.GREATER else min
            values = frozenset({last((requirement.values[0] for requirement in requirements), key=int)})
        case _:
            values = frozenset.union(*sets)
    if operator is Operator.IN and not values:
        yield LabelRequirement(key, Operator.EXISTS)
        yield LabelRequirement(key, Operator.ABSENT)
    else:
        yield LabelRequirement(key, operator, tuple(sorted(values)))


def parse_label_requirements(text: str) -> list[LabelRequirement]:
    """Parse a labelSelector, in the order of the text; ValueError with kube-apiserver's message."""
    return _Parser(text).requirements()


# A token with the blanks before it. In kube-apiserver's lexer, a NUL between two tokens ends the text; a NUL directly
# after a token ends that token and is dropped.
_PIECE = re.compile("[ \t\r\n]*(?:(==|!=|[=!(),<>]|[^=!(),<> \t\r\n\0]+)\0?)?")
_SYMBOLS = frozenset({"==", "!=", "=", "!", "(", ")", ",", "<", ">"})
_END = ""
_COMPARISONS = {
    "=": Operator.IN,
    "==": Operator.IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GREATER,
    "<": Operator.LESS,
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
}


class _Parser:
    """Parses as kube-apiserver does, function by function, because error messages depend on the function that finds
    the error.

    A token is its text, and "" is the end of the text. "in" and "notin" may also be keys or values.
    """

    def __init__(self, text: str) -> None:
        self._pieces = _pieces(text)
        self._at = 0

    def requirements(self) -> list[LabelRequirement]:
        parsed: list[LabelRequirement] = []
        while self._next != _END:
            if not self._begins_requirement():
                raise ValueError(f"found '{self._next}', expected: !, identifier, or 'end of string'")
            try:
                parsed.append(self._requirement())
            except ValueError as error:
                raise ValueError(f"unable to parse requirement: {error}") from None
            piece = self._take()
            if piece == _END:
                break
            if piece != ",":
                raise ValueError(f"found '{piece}', expected: ',' or 'end of string'")
            if not self._begins_requirement():
                raise ValueError(f"found '{self._next}', expected: identifier after ','")
        return parsed

    @property
    def _next(self) -> str:
        return self._pieces[self._at]

    def _take(self) -> str:
        piece = self._pieces[self._at]
        self._at = min(self._at + 1, len(self._pieces) - 1)
        return piece

    def _begins_requirement(self) -> bool:
        return _is_token(self._next) or self._next == "!"

    def _requirement(self) -> LabelRequirement:
        absent = self._next == "!"
        if absent:
            self._take()
        key = self._take()
        if not _is_token(key):
            raise ValueError(f"found '{key}', expected: identifier")
        faults = key_faults(key)
        if faults:
            raise ValueError(f"<nil>: Invalid value: {quoted(key)}: {'; '.join(faults)}")
        if absent:
            return LabelRequirement(key, Operator.ABSENT)
        if self._next in (_END, ","):
            return LabelRequirement(key, Operator.EXISTS)
        spelled = self._take()
        operator = _COMPARISONS.get(spelled)
        if operator is None:
            raise ValueError(f"found '{spelled}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._value_set() if spelled in ("in", "notin") else {self._single_value()}
        return _comparison(key, operator, sorted(values))

    def _single_value(self) -> str:
        if self._next in (_END, ","):
            return ""
        piece = self._take()
        if not _is_token(piece):
            raise ValueError(f"found '{piece}', expected: identifier")
        return piece

    def _value_set(self) -> set[str]:
        piece = self._take()
        if piece != "(":
            raise ValueError(f"found '{piece}' expected: '('")
        if self._next == ")":
            self._take()
            return {""}
        if not (_is_token(self._next) or self._next == ","):
            raise ValueError(f"found '{self._next}', expected: ',', ')' or identifier")
        values = self._value_list()
        self._take()
        return values

    def _value_list(self) -> set[str]:
        """The values up to the closing parenthesis. A comma with no text on one side adds an empty value."""
        values: set[str] = set()
        while True:
            piece = self._take()
            if _is_token(piece):
                values.add(piece)
                if self._next == ")":
                    return values
                if self._next != ",":
                    raise ValueError(f"found '{self._next}', expected: ',' or ')'")
            elif piece == ",":
                if not values or self._next in (",", ")"):
                    values.add("")
                if self._next == ")":
                    return values
            else:
                raise ValueError(f"found '{piece}', expected: ',', or identifier")


def _pieces(text: str) -> list[str]:
    """Split a text into tokens, the last of which is _END."""
    pieces, at = [], 0
    while match := _PIECE.match(text, at):
        pieces.append(match[1] or _END)
        at = match.end()
        if pieces[-1] == _END:
            break
    return pieces


def _is_token(piece: str) -> bool:
    return piece != _END and piece not in _SYMBOLS


def _comparison(key: str, operator: Operator, values: list[str]) -> LabelRequirement:
    faults = []
    if operator in (Operator.GREATER, Operator.LESS):
        try:
            number = parse_integer(values[0])
        except ValueError:
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            faults.append(f"values[0]: Invalid value: {quoted(values[0])}: {why}")
    for index, value in enumerate(values):
        if wrong := value_faults(value):
            faults.append(f"values[{index}][{key}]: Invalid value: {quoted(value)}: {'; '.join(wrong)}")
    if faults:
        raise ValueError(faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]")
    if operator in (Operator.GREATER, Operator.LESS):
        values = [str(number)]
    return LabelRequirement(key, operator, tuple(values))
