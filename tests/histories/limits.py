"""Bounds that a history lowers so far that it reaches them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from addons.views import consistent_list
from kube.reflector import history_verifier, list_pages, reflector
from kube.store import change_log, history, projection, view

LIMITS: dict[str, tuple[tuple[ModuleType, str, int], ...]] = {
    "few": ((history_verifier, "FEW_OBJECTS", 0), (consistent_list, "FEW_OBJECTS", 0)),
    "changes": ((history, "MAX_CHANGES", 3),),
    "gaps": ((history, "MAX_GAPS", 1),),
    "confirmed": ((view, "MAX_CONFIRMED", 2),),
    "logs": ((change_log, "LOG_MIN_CHANGES", 1), (change_log, "LOG_MAX_BYTES", 1)),
    "slices": (
        (projection, "EVALUATION_BATCH", 1),
        (view, "MATCH_BATCH", 1),
        (reflector, "EVENT_BATCH", 1),
    ),
    "pages": ((list_pages, "PAGE", 1),),
}
"""The constants that each group lowers, and their low values."""


def shrink(groups: tuple[str, ...]) -> Callable[[], None]:
    """Lower these bounds; return a function that restores them."""
    changed = [
        (module, name, getattr(module, name), small)
        for group in groups
        for module, name, small in LIMITS[group]
    ]
    for module, name, _, small in changed:
        setattr(module, name, small)

    def restore() -> None:
        for module, name, was, _ in reversed(changed):
            setattr(module, name, was)

    return restore
