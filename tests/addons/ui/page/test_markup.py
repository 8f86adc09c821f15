"""HTML from values: no text of a value becomes markup."""

from __future__ import annotations

import pytest

from addons.ui.page.markup import NOTHING, lines, options, table, text

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
    assert '<td data-label="count">1</td>' in html
    assert '<tr class="bad">' in html
    assert "none" in table([], ())


def test_the_choice_is_there_though_it_is_not_in_the_list() -> None:
    html = options(["a", "b", "a"], "c", "choose")
    assert (
        html
        == '<option value="">choose</option><option>a</option><option>b</option><option selected>c</option>'
    )
