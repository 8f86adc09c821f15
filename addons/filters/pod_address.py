"""Where pods reach the hub, as the operator says it: what filters write for them."""

from __future__ import annotations

from dataclasses import dataclass

from kube.option import addresses

AUTO_ADDRESS = "169.254.2.1"
"""The address for pods that the hub makes by itself: link-local, so that no network beyond the node has it."""


@dataclass(frozen=True, slots=True)
class PodAddress:
    """Where pods reach the hub; no address where nobody says."""

    addresses: tuple[str, ...]
    makes: bool
    """Whether the hub itself gives the node these addresses, and listens there."""


def parse_pod_address(name: str, text: str) -> PodAddress:
    """`auto`, or `auto,ADDRESS` with one for each family, or addresses of the node."""
    first, *others = text.split(",")
    if first.strip() != "auto":
        return PodAddress(addresses(name, text), makes=False)
    return PodAddress(addresses(name, ",".join(others)) if others else (AUTO_ADDRESS,), makes=True)
