"""HTML from values: no text of a value becomes markup."""

from __future__ import annotations

import pytest

from addons.ui.page.markup import NOTHING, lines, options, table, text
from addons.ui.reports.text import Column, Row

EVIL = "<script>alert('x')</script>\""
SAFE = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&quot;"


@pytest.mark.parametrize(
    ("value", "said"), [(EVIL, SAFE), (None, NOTHING), ([], NOTHING), (["a", "<"], "a, &lt;"), (0, "0")]
)
def test_text(value: object, said: str) -> None:
    assert text(value) == said


def test_nothing_becomes_markup_anywhere() -> None:
    made = [
        table([{"a": EVIL}], ((EVIL, lambda row: row["a"]),), lambda _: EVIL),
        options([EVIL], EVIL, EVIL),
        lines([EVIL]),
    ]
    for html in made:
        assert "<script" not in html
        assert "alert" in html


def test_a_cell_names_its_column_and_an_empty_table_says_so() -> None:
    html = table([{"a": 1}], (("count", lambda row: row["a"]),), lambda _: "bad")
    assert '<td data-label="count" class="number">1</td>' in html
    assert '<tr class="bad">' in html
    assert "none" in table([], ())


def test_the_choice_is_there_though_it_is_not_in_the_list() -> None:
    html = options(["a", "b", "a"], "c", "choose")
    assert (
        html
        == '<option value="">choose</option><option>a</option><option>b</option><option selected>c</option>'
    )


@pytest.mark.parametrize(
    ("values", "is_number"),
    [([1, 20], True), (["812 B", "1.5 MiB"], True), (["4s", "2h5m", "-"], True), ([1, "one"], False)],
)
def test_numbers_stand_at_the_right(values: list[object], is_number: bool) -> None:
    rows: list[Row] = [{"a": each} for each in values]
    html = table(rows, (("a", lambda row: row["a"]),))
    assert html.count('class="number"') == (len(values) + 1 if is_number else 0)


def test_a_column_without_a_value_is_not_there() -> None:
    rows: list[Row] = [{"a": "x", "b": "", "c": "-"}, {"a": "y", "b": [], "c": None}]
    columns: list[Column] = [
        ("a", lambda row: row["a"]),
        ("b", lambda row: row["b"]),
        ("c", lambda row: row["c"]),
    ]
    html = table(rows, columns)
    assert [f'data-label="{each}"' in html for each in "abc"] == [True, False, False]
