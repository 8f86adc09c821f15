"""`scripts/conformance`: its specs, and the parsing of upstream's reports."""

from __future__ import annotations

from scripts.conformance_tests.api_paths import FORBIDDEN
from scripts.conformance_tests.program import table, verdict
from scripts.conformance_tests.specs import CANDIDATES, ON_NODE, chosen, read_report

REPORT = b"""<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite name="Kubernetes e2e suite">
<testcase name="[SynchronizedBeforeSuite]" status="passed"></testcase>
<testcase name="[It] [sig-apps] good" status="passed"></testcase>
<testcase name="[It] [sig-apps] other" status="skipped"></testcase>
<testcase name="[It] [sig-apps] bad" status="failed"><failure message="" type="failed">no
 luck</failure></testcase>
<testcase name="[It] [sig-apps] late" status="timedout"></testcase>
</testsuite></testsuites>"""


def test_the_candidates_are_in_order_and_can_be_chosen() -> None:
    names = CANDIDATES.read_text().splitlines()
    assert names == sorted(set(names))
    assert chosen("") == names
    on_node = ON_NODE.read_text().splitlines()
    assert on_node == sorted(set(on_node)) == chosen("Conformance", ON_NODE)
    assert {"Watchers"} == {name.split()[1] for name in chosen(r"\] Watchers ")}


def test_a_report_has_an_outcome_for_each_spec_that_ran() -> None:
    found = read_report(REPORT)
    del found["[SynchronizedBeforeSuite]"]
    assert found == {"[sig-apps] good": "", "[sig-apps] bad": "no luck", "[sig-apps] late": "timedout"}


def test_the_table_counts_specs_that_pass_without_the_hub() -> None:
    csr, *_ = FORBIDDEN
    direct = {"a": "", "b": "", "c": "no", csr: ""}
    relay, filtered = {"a": "", "b": "lost", csr: "403"}, {"a": "", "b": "", csr: "403"}
    lines = table(direct, {"relay": relay, "filtered": filtered}).splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["direct", "relay", "filtered"],
        ["passed", "passed", "passed"],
        ["passed", "FAILED", "passed"],
        ["relay:", "lost"],
        ["FAILED", "-", "-"],
        ["direct:", "no"],
        ["passed", "forbidden", "forbidden"],
        ["direct:", "3", "of"],
        ["relay:", "1", "of"],
        ["filtered:", "2", "of"],
    ]
    assert lines[-1] == "filtered: 2 of 3 (2 passed, 1 forbidden)"


def test_forbidden_specs_are_candidates() -> None:
    assert set(FORBIDDEN) <= set(chosen(""))


def test_a_forbidden_spec_that_passes_is_reported() -> None:
    (spec, *_) = FORBIDDEN
    assert [verdict(spec, "relay", why) for why in ("403", "", None)] == ["forbidden", "ALLOWED", "-"]
