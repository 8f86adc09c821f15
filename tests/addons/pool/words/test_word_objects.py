"""A word goes over the peer port and comes back as it was; what is no word is refused."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from addons.filters.inputs import PodWord
from addons.pool.words.word_objects import read_word, word_object
from kube.json_type import Json

KEY = ("default", "web-0")
WORD = PodWord("web-0", "u", {"app": "web"}, ("10.0.0.2", "fd00::2"), True, False, "12:03")


@pytest.mark.parametrize(
    "word",
    [
        WORD,
        WORD._replace(addresses=(), is_ready=False),
        WORD._replace(is_terminating=True, version=77),
        WORD._replace(labels={}),
    ],
)
def test_a_word_comes_as_it_was_said(word: PodWord) -> None:
    assert read_word(word_object(KEY, word, 5), "n2") == word._replace(node="n2")


@pytest.mark.parametrize(
    "changed",
    [
        {"metadata": {}},
        {"metadata": {"name": "web-0"}},
        {"metadata": {"name": "web-0\nx", "uid": "u"}},
        {"version": "-1"},
        {"version": "x"},
        {"status": {"podIPs": [{"ip": "not an address"}]}},
        {"status": {"podIPs": [{"ip": "10.0.0.1, 10.0.0.2"}]}},
    ],
)
def test_what_is_no_word_is_refused(changed: Json) -> None:
    document = orjson.loads(word_object(KEY, WORD, 5)) | changed
    with pytest.raises(ValueError, match=r"."):
        read_word(orjson.dumps(document), "n2")


@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(), st.lists))
def test_garbage_in_any_place_is_a_word_or_a_value_error(garbage: object) -> None:
    for place in ("metadata", "status", "version", "since"):
        document = orjson.loads(word_object(KEY, WORD, 5)) | {place: garbage}
        try:
            word = read_word(orjson.dumps(document), "n2")
        except ValueError:
            continue
        assert word.since in ("", "12:03")
        assert word.name == "web-0"
