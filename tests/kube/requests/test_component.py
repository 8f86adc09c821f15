"""The component name in rules, metrics and files, parsed from a User-Agent."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.requests.component import MAX_LENGTH, UNKNOWN, component_named, component_of


@pytest.mark.parametrize(
    ("user_agent", "component"),
    [
        ("kubelet/v1.36.3 (linux/amd64) kubernetes/abc1234", "kubelet"),
        ("kube-proxy/v1.36.3 (linux/amd64) kubernetes/abc1234", "kube-proxy"),
        ("CoreDNS/1.12 git_commit:1234567 (linux/amd64/go1.24)", "coredns"),
        ("OpenAPI-Generator/36.0.2/python", "openapi-generator"),
        ("Go-http-client/2.0", "go-http-client"),
        ("flanneld", "flanneld"),
        ("my_agent.v2/1", "my_agent.v2"),
        ("x" * MAX_LENGTH, "x" * MAX_LENGTH),
        ("Kubernetes Java Client/25.0.0-SNAPSHOT", "kubernetes java client"),
        ("My  Agent /2", "my agent"),
        ("Mozilla 5.0", "mozilla 5.0"),
        ("Unknown/1", "unknown"),
    ],
)
def test_the_component_is_parsed_from_the_user_agent(user_agent: str, component: str) -> None:
    assert component_of(user_agent) == component


@pytest.mark.parametrize(
    "user_agent",
    [
        None,
        "",
        "/v1",
        "..",
        "./kubelet",
        "../etc/passwd",
        " ",
        "a\tb",
        "kubelet\n",
        "kubelet\0/v1",
        "\u212aubelet/v1",  # the Kelvin sign, which becomes "k" in lower case
        "kub\u00e9let/v1",
        'kubelet"} 1',
        "x" * (MAX_LENGTH + 1),
    ],
)
def test_a_malformed_user_agent_is_the_component_unknown(user_agent: str | None) -> None:
    assert component_of(user_agent) == UNKNOWN


@given(st.text() | st.from_regex(r"[-A-Za-z0-9._/ ]*"))
def test_a_component_is_safe_in_a_metric_and_a_path(user_agent: str) -> None:
    component = component_of(user_agent)
    assert re.fullmatch(r"[a-z0-9._-]+( [a-z0-9._-]+)*", component)
    assert len(component) <= MAX_LENGTH
    assert component not in (".", "..")
    assert component_of(component) == component_named(component) == component
