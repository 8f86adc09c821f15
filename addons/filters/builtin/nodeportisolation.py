"""Hides a NodePort or LoadBalancer Service from the node pools that its annotation does not let listen.

Needs: the annotation nodeport.openyurt.io/listen, a comma list of `pool`, `-pool` and `*`, and this node's
pool. Drops the Service where the pool is neither listed nor covered by `*`, or is excluded; of two entries
about one pool the first counts. Without the annotation, or where this node is in no pool, the Service is
kept, as plain Kubernetes would.
"""

from __future__ import annotations

from dataclasses import dataclass

from addons.filters.filter import LIST_AND_WATCH, SERVICES
from addons.filters.inputs import Inputs
from addons.filters.verdict import Note, Verdict, dropped, ignore_note, kept
from kube.wire.api_objects import ApiObject

LISTEN = "nodeport.openyurt.io/listen"


@dataclass(frozen=True)
class NodePortIsolation:
    name = "nodeportisolation"
    resources = frozenset({SERVICES})
    components = frozenset({"kube-proxy"})
    verbs = LIST_AND_WATCH
    reasons = frozenset({"no-node-port", "no-listen-annotation", "no-pool", "pool-listens", "pool-isolated"})

    def apply(self, obj: ApiObject, inputs: Inputs, note: Note = ignore_note) -> Verdict:
        if obj.fields.child("spec").text("type") not in ("NodePort", "LoadBalancer"):
            return kept("no-node-port")
        listen = obj.annotations.get(LISTEN)
        if listen is None:
            return kept("no-listen-annotation")
        pool = inputs.own_pool()
        if not pool:
            return kept("no-pool")
        verdict = kept("pool-listens") if may_listen(listen, pool) else dropped("pool-isolated")
        note(
            f"service {obj.namespace}/{obj.name}",
            verdict.outcome,
            f"it has {LISTEN}={listen}, this node's pool is {pool}",
        )
        return verdict


def may_listen(listen: str, pool: str) -> bool:
    """Whether the annotation's value permits a pool to listen."""
    said: dict[str, bool] = {}
    for entry in map(str.strip, listen.split(",")):
        said.setdefault(entry.removeprefix("-"), not entry.startswith("-"))
    return said.get(pool, said.get("*", False))
