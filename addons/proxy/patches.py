"""Replaces names of mitmproxy's by the hub's own, after a check that mitmproxy still is what the hub knows.

Each module of this package that replaces something lists it as `PATCHES`: what, why, and the test that runs
mitmproxy's own code to show the fault. When that test fails, mitmproxy has mended the fault and the patch can go.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType

KNOWN_MITMPROXY = "12.2"
"""The minor version that the patches are made for."""
MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Patch:
    """One name that mitmproxy looks up in a module or class, and what the hub puts there."""

    place: ModuleType | type
    name: str
    replacement: object
    signature: str
    """As `inspect.signature` writes that of mitmproxy's own, without annotations; MISSING for a name that a class only
    inherits."""
    why: str
    shown_by: str
    """Path and name of the test that shows the fault."""


class UnknownMitmproxyError(Exception):
    """mitmproxy's insides are not those that the hub was made for."""


def install(patches: Iterable[Patch]) -> None:
    """Put all replacements in place, or none: UnknownMitmproxyError names the first one that would not fit.

    Where the replacement is a class derived from mitmproxy's, each method that it overrides must fit as well.
    """
    wanted = [each for each in patches if vars(each.place).get(each.name) is not each.replacement]
    for each in wanted:
        _check(each)
    for each in wanted:
        setattr(each.place, each.name, each.replacement)


def signature_of(value: object) -> str:
    """A callable's parameters with their defaults, without annotations; the empty text where there is no signature."""
    if not callable(value):
        return ""
    empty = inspect.Parameter.empty
    parameters = inspect.signature(value).parameters.values()
    return str(inspect.Signature([each.replace(annotation=empty) for each in parameters]))


def _check(patch: Patch) -> None:
    module = patch.place.__module__ + "." if isinstance(patch.place, type) else ""
    place = f"{module}{patch.place.__name__}.{patch.name}"
    own = vars(patch.place).get(patch.name)
    _compare(place, own, patch.signature)
    if isinstance(own, type) and isinstance(patch.replacement, type):
        for name, value in vars(patch.replacement).items():
            if inspect.isfunction(value) and hasattr(own, name):
                _compare(f"{place}.{name}", getattr(own, name), signature_of(value))


def _compare(name: str, own: object, expected: str) -> None:
    found = signature_of(own) if own is not None else MISSING
    if found != expected:
        raise UnknownMitmproxyError(
            f"the hub needs mitmproxy {KNOWN_MITMPROXY}: {name} is {found} here, not {expected}"
        )
