"""The grammar of label selectors. All expected results come from kube-apiserver 1.36."""

import pytest

from kube.requests.label_requirements import LabelRequirement, Operator, parse_label_requirements
from kube.requests.label_syntax import key_faults, value_faults

IN, NOT_IN, EXISTS, ABSENT = Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.ABSENT


@pytest.mark.parametrize(
    ("text", "requirement"),
    [
        ("a", LabelRequirement("a", EXISTS)),
        ("!a", LabelRequirement("a", ABSENT)),
        ("! a", LabelRequirement("a", ABSENT)),
        ("a=b", LabelRequirement("a", IN, ("b",))),
        ("a==b", LabelRequirement("a", IN, ("b",))),
        ("a\n =\t b\r", LabelRequirement("a", IN, ("b",))),
        ("a=", LabelRequirement("a", IN, ("",))),
        ("a!=b", LabelRequirement("a", NOT_IN, ("b",))),
        ("a in (c,b,c)", LabelRequirement("a", IN, ("b", "c"))),
        ("a in(b)", LabelRequirement("a", IN, ("b",))),
        ("a notin (b , c)", LabelRequirement("a", NOT_IN, ("b", "c"))),
        ("a in ()", LabelRequirement("a", IN, ("",))),
        ("a in (,)", LabelRequirement("a", IN, ("",))),
        ("a in (,b)", LabelRequirement("a", IN, ("", "b"))),
        ("a in (b,)", LabelRequirement("a", IN, ("", "b"))),
        ("a in (b,,c)", LabelRequirement("a", IN, ("", "b", "c"))),
        ("a>1", LabelRequirement("a", Operator.GREATER, ("1",))),
        ("a < 01", LabelRequirement("a", Operator.LESS, ("1",))),
        ("in in (in,notin)", LabelRequirement("in", IN, ("in", "notin"))),
        ("notin", LabelRequirement("notin", EXISTS)),
        ("a=in", LabelRequirement("a", IN, ("in",))),
        ("x.y/z", LabelRequirement("x.y/z", EXISTS)),
        ("a=b\0", LabelRequirement("a", IN, ("b",))),
        ("a\0=\0b", LabelRequirement("a", IN, ("b",))),
    ],
)
def test_each_requirement_is_parsed(text: str, requirement: LabelRequirement) -> None:
    assert parse_label_requirements(text) == [requirement]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("(a)", "found '(', expected: !, identifier, or 'end of string'"),
        ("==", "found '==', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,\0", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!a in (b)", "found 'in', expected: ',' or 'end of string'"),
        ("a in (b))", "found ')', expected: ',' or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a\0b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a gt 1", "unable to parse requirement: found 'gt', expected: in, notin, =, ==, !=, gt, lt"),
        ("a!", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!!a", "unable to parse requirement: found '!', expected: identifier"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a>=1", "unable to parse requirement: found '=', expected: identifier"),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (!b)", "unable to parse requirement: found '!', expected: ',', ')' or identifier"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (b,!)", "unable to parse requirement: found '!', expected: ',', or identifier"),
    ],
)
def test_grammar_errors_have_kube_apiservers_messages(text: str, why: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (compared in full)
        parse_label_requirements(text)
    assert str(error.value) == why


INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"
VALUE = value_faults("-")[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a-", f'<nil>: Invalid value: "a-": {key_faults("a-")[0]}'),
        ("a\u00a0=b", rf'<nil>: Invalid value: "a\u00a0": {key_faults("-")[0]}'),
        ("a/", f'<nil>: Invalid value: "a/": {"; ".join(key_faults("a/"))}'),
        ("-a=-b", f'<nil>: Invalid value: "-a": {key_faults("-a")[0]}'),
        ("a=-b", f'values[0][a]: Invalid value: "-b": {VALUE}'),
        ('a="b"', rf'values[0][a]: Invalid value: "\"b\"": {VALUE}'),
        ("a in (x,-y)", f'values[0][a]: Invalid value: "-y": {VALUE}'),
        (
            "a in (-y,z-)",
            f'[values[0][a]: Invalid value: "-y": {VALUE}, values[1][a]: Invalid value: "z-": {VALUE}]',
        ),
        ("a>x", f'values[0]: Invalid value: "x": {INTEGER}'),
        ("a<", f'values[0]: Invalid value: "": {INTEGER}'),
        ("a>99999999999999999999", f'values[0]: Invalid value: "99999999999999999999": {INTEGER}'),
        ("a>-1", f'values[0][a]: Invalid value: "-1": {VALUE}'),
        ("a>-x", f'[values[0]: Invalid value: "-x": {INTEGER}, values[0][a]: Invalid value: "-x": {VALUE}]'),
    ],
)
def test_errors_in_keys_and_values_have_kube_apiservers_messages(text: str, why: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (compared in full)
        parse_label_requirements(text)
    assert str(error.value) == f"unable to parse requirement: {why}"


@pytest.mark.parametrize(
    ("text", "value", "matches"),
    [
        ("a>1", "2", True),
        ("a>1", "1", False),
        ("a<1", "0", True),
        ("a<1", "1", False),
        ("a>9", "10", True),  # compared as numbers, not as text
        ("a>1", "x", False),
        ("a<1", "", False),
        ("a<1", "-5", True),
        ("a>1", "99999999999999999999", False),  # not a 64-bit number
    ],
)
def test_a_label_requirement_compares_its_value(text: str, value: str, matches: bool) -> None:
    (requirement,) = parse_label_requirements(text)
    assert requirement.matches({"a": value}) is matches
    assert not requirement.matches({})
