"""Which texts the hub reads as rules, and which it refuses before they cost anything."""

from __future__ import annotations

import pytest

from addons.ui.reports.rule_text import MAX_TEXT, read_rules

MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yurt-hub-cfg}\n"


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (f"{MAP}data: {{endpoints: x}}\n", {"endpoints": "x"}),
        (f"kind: Service\n---\n{MAP}data: {{endpoints: x}}\n", {"endpoints": "x"}),
        ('{"kind": "ConfigMap", "data": {"endpoints": "x"}}', {"endpoints": "x"}),
        ("endpoints: x\ncache_agents: '*'\n", {"endpoints": "x", "cache_agents": "*"}),
        ("data:\n  endpoints: x\n", {"endpoints": "x"}),
        ("data: x\n", {"data": "x"}),
        ("endpoints: 2024-99-99\n", {"endpoints": "2024-99-99"}),
        (MAP, None),
        ("", None),
        ("# nothing\n", None),
    ],
)
def test_a_configmap_or_its_data(text: str, data: dict[str, str] | None) -> None:
    assert read_rules(text.encode()) == data


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a: [", "no YAML"),
        (b"\xff\xfe\xff", "no"),
        (b"kind: Service\n", "no ConfigMap"),
        (b"- x\n", "no ConfigMap"),
        ((MAP + "---\n" + MAP).encode(), "more than one"),
        ((MAP + "data: [x]\n").encode(), "no mapping"),
        (b"endpoints: 7\n", "data.endpoints is no text but 7: put it in quotation marks"),
        (b"a: &x [1]\nb: *x\n", "refers to itself"),
        (b"[" * 200_000, "within each other"),
        (b"{a: " * 200_000, "within each other"),
        (b"- " * 200_000, "within each other"),
        (b"- a\n" * 60_000, "nodes"),
        (b"#" * (MAX_TEXT + 1), "longer than"),
    ],
)
def test_what_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_rules(text)
