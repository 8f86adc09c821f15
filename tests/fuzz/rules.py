"""Fuzz target: the rules ConfigMap with random text: the parser reports invalid entries, and applies the rest."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from addons.rules.table import parse_rules
from tests.repository.support.tree import ROOT

ENTRIES = {
    "filter_servicetopology": "kube-proxy/endpointslices#list;watch,-coredns/endpoints",
    "servicetopology": "flanneld, ../x, -, a b",
    "filter_masterservice": "x/pods#list,y/services#shout,\x07",
    "filter_nonsense": "kubelet/pods",
    "cache_agents": "flanneld,*,a-b",
}


def seeds() -> Iterator[bytes]:
    shipped = yaml.safe_load((ROOT / "configmaps" / "yurt-hub-cfg.yaml").read_text())["data"]
    for data in (ENTRIES, shipped or {}):
        yield b"\0".join(f"{key}\0{value}".encode() for key, value in data.items())
    for key, value in ENTRIES.items():
        yield f"{key}\0{value}".encode()


def run(data: bytes) -> None:
    texts = [each.decode(errors="replace") for each in data.split(b"\0")]
    rules = parse_rules(dict(zip(texts[::2], texts[1::2], strict=False)))
    for problem in rules.problems.named:
        assert problem.why
    component = texts[-1].partition("/")[0].strip()
    for resource in ("services", "endpointslices"):
        chain = rules.bindings.chain(component, "", resource, "list")
        assert len({each.name for each in chain}) == len(chain)
        assert all(isinstance(line, str) for line in rules.bindings.explain(component, "", resource, "list"))
    assert isinstance(rules.is_cached(component), bool)
