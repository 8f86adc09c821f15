"""Selectors: the objects that they match, and the canonical form of every spelling."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.requests.selectors import MAX_REQUIREMENTS, parse_field_selector, parse_label_selector

type Labels = dict[str, str]
type Oracle = Callable[[Labels], bool]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (" ", ""),
        ("b,a", "a,b"),
        ("a,a", "a"),
        ("a==b", "a=b"),
        ("a in (b)", "a=b"),
        ("a notin (b)", "a!=b"),
        ("a in (c,b,b)", "a in (b,c)"),
        ("a in (b,)", "a in (,b)"),
        ("a=", "a="),
        ("!a, b notin (y,x) ,a>007", "!a,a>7,b notin (x,y)"),
        ("a!=x,b,a notin (z,y),a!=x", "a notin (x,y,z),b"),
        ("a in (x,y,z),a in (y,z,w)", "a in (y,z)"),
        ("a>5,a>10,a<30,a<9", "a<9,a>10"),
        # Selectors that match nothing.
        ("a=x,a=y", "!a,a"),
        ("a=x,a=y,a", "!a,a"),
    ],
)
def test_label_selectors_have_a_canonical_form(text: str, canonical: str) -> None:
    selector = parse_label_selector(text)
    assert selector.canonical == canonical
    assert selector == parse_label_selector(canonical)
    assert hash(selector) == hash(parse_label_selector(canonical))
    assert selector.is_everything is (canonical == "")


def test_all_requirements_of_a_label_selector_must_hold() -> None:
    selector = parse_label_selector("!service.kubernetes.io/headless,app in (web,db),tier!=test")
    assert selector.matches({"app": "web"})
    assert selector.matches({"app": "db", "tier": "live"})
    assert not selector.matches({"app": "db", "tier": "test"})
    assert not selector.matches({"app": "web", "service.kubernetes.io/headless": ""})
    assert not selector.matches({})
    assert parse_label_selector("").matches({})


def test_the_requirements_of_a_label_selector_are_bounded() -> None:
    """Matching 8 KB of them with 3,000 objects once took 0.3 s of the event loop."""
    most = ",".join(f"k{number}" for number in range(MAX_REQUIREMENTS))
    assert len(parse_label_selector(f"{most},k0,k1").requirements) == MAX_REQUIREMENTS
    with pytest.raises(ValueError, match=f"more than {MAX_REQUIREMENTS} requirements"):
        parse_label_selector(f"{most},more")


def test_a_long_selector_is_parsed_like_a_short_one() -> None:
    values = [f"v{number}" for number in range(1000)]
    selector = parse_label_selector(f"a in ({','.join(values)})")
    assert selector.matches({"a": "v999"})
    assert not selector.matches({"a": "v1000"})
    fields = parse_field_selector(",".join(f"f!={value}" for value in values))
    assert len(fields.requirements) == 1000


KEYS, VALUES = ["a", "b", "x.y/in"], ["", "1", "2", "10", "in", "v"]
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


def _set_text(draw: st.DrawFn, key: str, operator: str, values: list[str]) -> str:
    blank = st.sampled_from(["", " ", "\t"])
    inner = ",".join(f"{draw(blank)}{value}{draw(blank)}" for value in values)
    return f"{key} {operator}{draw(blank)}({inner})"


@st.composite
def label_requirements(draw: st.DrawFn) -> tuple[str, Oracle]:
    """Generate a requirement in some spelling, and its meaning in Python."""
    key, value = draw(st.sampled_from(KEYS)), draw(st.sampled_from(VALUES))
    values = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))
    number = draw(st.integers(0, 11))
    blank = draw(st.sampled_from(["", " "]))
    choices: list[tuple[str, Oracle]] = [
        (f"{key}", lambda labels: key in labels),
        (f"!{blank}{key}", lambda labels: key not in labels),
        (f"{key}{blank}={blank}{value}", lambda labels: labels.get(key) == value),
        (f"{key}{blank}=={value}", lambda labels: labels.get(key) == value),
        (f"{key}!={blank}{value}", lambda labels: labels.get(key) != value),
        (_set_text(draw, key, "in", values), lambda labels: labels.get(key) in values),
        (_set_text(draw, key, "notin", values), lambda labels: labels.get(key) not in values),
        (f"{key}>{number}", lambda labels: labels.get(key, "").isdigit() and int(labels[key]) > number),
        (f"{key}<{number}", lambda labels: labels.get(key, "").isdigit() and int(labels[key]) < number),
    ]
    return draw(st.sampled_from(choices))


@given(st.lists(label_requirements(), max_size=4), LABELS, st.randoms(use_true_random=False))
def test_a_label_selector_matches_if_all_its_requirements_do(
    requirements: list[tuple[str, Oracle]], labels: Labels, order: random.Random
) -> None:
    selector = parse_label_selector(",".join(text for text, _ in requirements))
    assert selector.matches(labels) == all(meaning(labels) for _, meaning in requirements)
    order.shuffle(requirements)
    assert parse_label_selector(" , ".join(text for text, _ in requirements)).canonical == selector.canonical


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", []),
        (",,,", []),
        ("=", []),
        ("!=", []),
        ("spec.nodeName=n1", [("spec.nodeName", True, "n1")]),
        ("spec.nodeName==n1", [("spec.nodeName", True, "n1")]),
        ("spec.clusterIP!=None", [("spec.clusterIP", False, "None")]),
        ("a!=", [("a", False, "")]),
        ("=x", [("", True, "x")]),
        ("b=1,a=2,b=1", [("a", True, "2"), ("b", True, "1")]),
        (r"a=1\,2\=3\\", [("a", True, "1,2=3\\")]),
        (r"a\,b=c", [(r"a\,b", True, "c")]),  # escapes before the operator are not decoded
        ("a =  b", [("a ", True, "  b")]),
        ("a!b=c", [("a!b", True, "c")]),
        ("a=b\n", [("a", True, "b\n")]),
    ],
)
def test_field_selectors_are_parsed(text: str, requirements: list[tuple[str, bool, str]]) -> None:
    selector = parse_field_selector(text)
    assert [(each.field, each.equal, each.value) for each in selector.requirements] == requirements
    assert selector.fields == {field for field, _, _ in requirements}
    assert selector.is_everything is (not requirements)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("foo", "invalid selector: 'foo'; can't understand 'foo'"),
        ("metadata.name=a,foo", "invalid selector: 'metadata.name=a,foo'; can't understand 'foo'"),
        ("!metadata.name", "invalid selector: '!metadata.name'; can't understand '!metadata.name'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ("a===b", "invalid field selector: unescaped character in value: 61"),
        (r"a=\b", r"invalid field selector: invalid escape sequence: \b"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
        ("z=\\,a=\\b", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_malformed_field_selectors_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (compared in full)
        parse_field_selector(text)
    assert str(error.value) == why


def test_a_field_selector_matches_its_fields() -> None:
    fields = {"metadata.name": "x", "spec.clusterIP": "10.0.0.1"}
    selector = parse_field_selector("spec.clusterIP!=None,metadata.name=x")
    assert selector.matches(lambda field: fields.get(field, ""))
    assert not selector.matches(lambda _: "None")
    assert parse_field_selector("spec.nodeName=").matches(lambda field: fields.get(field, ""))


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=x", "x"), ("a=", ""), ("b=1,a=x", "x"), ("a!=x", None), ("b=x", None), ("", None), (r"a=\,", ",")],
)
def test_the_exact_value_that_a_selector_requires_is_found(text: str, value: str | None) -> None:
    assert parse_field_selector(text).exact("a") == value
